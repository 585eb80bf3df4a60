"""What an experiment's file says about changes to itself, as it is stored; and nothing is stored that nobody wrote."""

import pytest

from arena_gitops.errors import RepoError
from arena_gitops.spec.resource import Address

EXPERIMENT = Address("experiment", "sums-grpo")
FILE = "experiments/sums-grpo.yaml"
NEW = ("distinct", "trainer", "region", "priority", "reuse", "notes", "notify")


def spec(repo, *lines):
    if lines:
        repo.edit(FILE, "kind: Experiment\n", "kind: Experiment\n" + "".join(f"{line}\n" for line in lines))
    return repo.load().resources[EXPERIMENT].spec


def test_what_nobody_wrote_is_not_stored(repo):
    stored = spec(repo)
    assert not [name for name in NEW if name in stored]
    assert stored["lifecycle"] == {"protect": False}
    assert stored["model"]["revision"] is None


def test_everything_that_is_written_is_stored(repo):
    stored = spec(
        repo,
        "trainer: '0.3'",
        "region: eu",
        "priority: 5",
        "reuse: false",
        "notes: for the paper",
        "notify: [ana]",
        "model: {revision: '" + "a" * 40 + "'}",
        "lifecycle:",
        "  protect: true",
        "  replace_policy: keep_old",
        "  ignore_remote_changes: [description]",
        "  on_change: {training.max_steps: new_version, tier: new_version}",
    )
    assert {name: stored[name] for name in NEW} == {
        "distinct": {
            "tier": stored["tier"],
            "training.max_steps": stored["manifest"]["training"]["max_steps"],
        },
        "trainer": "0.3",
        "region": "eu",
        "priority": 5,
        "reuse": False,
        "notes": "for the paper",
        "notify": ["ana"],
    }
    assert stored["model"]["revision"] == "a" * 40
    assert stored["lifecycle"]["replace_policy"] == "keep_old"
    assert stored["lifecycle"]["ignore_remote_changes"] == ["description"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lifecycle: {on_change: {training.max_stepz: new_version}}", "training.max_stepz"),
        ("lifecycle: {on_change: {training.lr: noop}}", "new_version"),
        ("lifecycle: {replace_policy: keep}", "keep_old"),
        ("lifecycle: {ignore_remote_changes: [manifest]}", "strategy"),
        ("trainer: 0.3", "quote it"),
        ("model: {revision: main}", "40 hex"),
        ("priority: 101", "100"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(repo, line, said):
    with pytest.raises(RepoError) as refused:
        spec(repo, line)
    (problem,) = refused.value.diagnostics
    assert problem.span.file == FILE
    assert said in f"{problem.message} {problem.hint}"
