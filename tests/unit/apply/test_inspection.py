"""What `arena check` looks at, and what it says without running anything."""

from __future__ import annotations

import pytest
from stacks import small

from arena_gitops.apply import inspection
from arena_gitops.apply.events import silent
from arena_gitops.errors import UsageError
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.report import checks
from arena_gitops.spec.wire import CheckResult, CheckSummary

SUSPICIOUS = "import pickle\ndef reward(question, answer, completion):\n    return eval(completion)\n"


def looked_at(stack, *named):
    desired = stack.state()
    return inspection.static(desired, inspection.chosen(desired, named))


def test_everything_that_can_be_checked_is(scene):
    found = looked_at(small())
    assert sorted(found.inputs) == ["dataset/words", "experiment/words-grpo", "reward/exact"]
    assert {result.status for result in found.results} == {"pass"}
    assert (found.ran, found.failed) == (False, ())


def test_a_suspicious_line_of_a_reward_is_a_warning_at_its_place():
    found = looked_at(small().reward(source=SUSPICIOUS), "reward/exact")
    told = [(r.status, r.file, r.line, r.message.split()[0]) for r in found.results]
    assert told == [
        ("warn", "rewards/exact.py", 1, "import"),
        ("warn", "rewards/exact.py", 3, "eval()"),
    ]


def test_an_address_that_does_not_exist_is_a_usage_error():
    with pytest.raises(UsageError, match="no reward/exat to check; there are: dataset/words"):
        looked_at(small(), "reward/exat")


def test_another_content_has_another_digest():
    one, other = (looked_at(small().reward(source=s)).inputs for s in (SUSPICIOUS, "x = 1\n"))
    assert one["reward/exact"] != other["reward/exact"]
    assert one["dataset/words"] == other["dataset/words"]


def test_a_reward_is_run_on_the_rows_of_the_experiment_that_uses_it():
    platform, asked = MemoryPlatform(), []
    check = platform.check
    platform.check = lambda request: asked.append(request) or check(request)
    desired = small().state()
    found = inspection.run(platform, desired, inspection.chosen(desired, ["reward/exact"]), silent)
    assert [(r.address, r.inputs.dataset.address) for r in asked] == [
        ("experiment/words-grpo", "dataset/words")
    ]
    assert found.ran
    assert platform.missing_blobs(desired_digests(desired)) == frozenset()


def desired_digests(desired):
    return [b.digest for r in desired.resources.values() for b in r.blobs]


def test_inputs_that_nothing_uses_are_checked_alone():
    platform, asked = MemoryPlatform(), []
    platform.check = lambda request: asked.append(request) or iter(())
    desired = small().reward("lonely").dataset("lone").state()
    named = ["reward/lonely", "dataset/lone"]
    inspection.run(platform, desired, inspection.chosen(desired, named), silent)
    assert [r.address for r in asked] == ["dataset/lone", "reward/lonely"]


def test_the_table_of_a_pull_request_has_what_did_not_pass_worst_first():
    results = [
        CheckResult(address="reward/r", name="import", status="pass"),
        CheckResult(address="reward/r", name="hack", status="warn", message="a | b", file="r.py"),
        CheckResult(address="reward/r", name="cases", status="fail", message="case 1"),
    ]
    text = checks.markdown(results, CheckSummary(passed=1, warned=1, failed=1))
    assert [row.split(" | ")[0] for row in text.splitlines()[2:4]] == ["| FAIL", "| warn"]
    assert text.endswith("\n\nChecks: 1 passed, 1 warned, 1 failed.\n")
    assert checks.line(results[1]) == "warn  reward/r  hack: r.py:1: a | b"
