"""Rewards with the bugs people report in public, each caught before a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from arena_gitops.spec.job import RewardCase
from arena_gitops.spec.wire import CheckRequest
from arena_runner.checks import run_checks, summarise
from arena_runner.sandbox import Limits

GOOD = """
import re
def reward(question, answer, completion):
    found = re.findall(r"[0-9]+", completion)
    return float(bool(found) and found[-1] == re.findall(r"[0-9]+", answer)[-1])
"""


@pytest.fixture
def check(tmp_path: Path):
    """Check a reward given as source; (name, status) → first such result."""

    def run(
        source: str,
        *,
        cases=(),
        rows=None,
        limits=None,
        algorithm="GRPO",
        category="reasoning",
        stored=None,
        **reward,
    ):
        blobs = {}

        def blob(text: str) -> str:
            digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
            blobs[digest] = tmp_path / digest
            blobs[digest].write_text(text)
            return digest

        columns = {"reasoning": ("question", "answer"), "sft": ("prompt", "target")}[category]
        rows = rows or ["2+2?,#### 4", "3*3?,#### 9"]
        request = CheckRequest.model_validate(
            {
                "address": "experiment/e",
                "manifest": {"algorithm": {"name": algorithm}},
                "inputs": {
                    "dataset": {
                        "address": "dataset/d",
                        "category": category,
                        "column_mapping": dict(zip(columns, columns, strict=True)),
                        "digest": blob("\n".join([",".join(columns), *rows])),
                        "format": "csv",
                    },
                    "reward": {
                        "address": "reward/r",
                        "files": {"rewards/r.py": blob(source)},
                        "entry": "rewards/r.py",
                        "cases": cases,
                        **reward,
                    },
                },
            }
        )
        results = list(run_checks(request, blobs.__getitem__, limits=limits, stored=stored))
        found = {}
        for result in results:
            found.setdefault((result.name, result.status), result)
        return found

    return run


def test_a_good_reward_passes_everything(check):
    case = RewardCase(question="q", answer="#### 72", completion="it is 72", expect=1.0)
    found = check(GOOD, cases=(case,))
    assert summarise(list(found.values())).failed == 0
    assert found["cases", "pass"].message == "1 cases score as expected"
    assert ("probes", "pass") in found
    assert ("repeat", "pass") in found


def test_a_case_that_scores_otherwise_fails_with_both_values(check):
    case = RewardCase(question="q", answer="#### 72", completion="it is 71", expect=1.0)
    failed = check(GOOD, cases=(case,))["cases", "fail"]
    assert failed.message == "case 1: expected 1, got 0 for 'it is 71'"
    assert failed.file == "rewards/r.py"


def test_a_reward_that_fails_on_an_empty_completion_names_its_own_line(check):
    failed = check("def reward(q, a, c):\n    words = c.split()\n    return len(words[-1])\n")[
        "probes", "fail"
    ]
    assert (failed.file, failed.line) == ("rewards/r.py", 3)
    assert failed.message == "on an empty completion: the reward raised IndexError: list index out of range"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no')", "on the gold answer: the reward raised ValueError: no"),
        ("pass", "on the gold answer: the reward returned None (NoneType)"),
        ("return float('nan')", "on the gold answer: the reward returned nan (float)"),
        (
            "import os; os._exit(3)",
            "on the gold answer: the reward failed: it ended the process (exit code 3)",
        ),
    ],
)
def test_a_broken_reward_says_so_once_with_its_place(check, body, said):
    found = check(f"def reward(q, a, c):\n    {body}\n")
    failed = found["probes", "fail"]
    assert failed.message.startswith(said)
    assert failed.file == "rewards/r.py"


def test_a_reward_that_hangs_on_huge_text_fails_within_its_limit(check):
    source = "def reward(q, a, c):\n    while len(c) > 100_000: pass\n    return 1.0 * len(c)\n"
    failed = check(source, limits=Limits(call_timeout_s=0.5))["probes", "fail"]
    assert failed.message == "on a huge completion: the reward took longer than 0.5 s"


def test_an_import_error_is_one_failure(check):
    found = check("import nothing_like_it\n")
    assert found["import", "fail"].line == 1
    assert ("probes", "pass") not in found


def test_a_reward_that_rolls_dice_fails(check):
    failed = check("import random\ndef reward(q, a, c): return random.random()")["repeat", "fail"]
    assert failed.message.startswith("not deterministic: ")


def test_a_reward_that_remembers_earlier_calls_fails(check):
    source = "seen = []\ndef reward(q, a, c):\n    seen.append(c)\n    return float(len(seen))\n"
    assert ("repeat", "fail") in check(source)


def test_a_reward_that_never_changes_is_warned_about(check):
    assert (
        "training would have no signal" in check("def reward(q, a, c): return 0.0")["signal", "warn"].message
    )


def test_a_reward_that_pays_for_length_alone_is_warned_about(check):
    warned = check("def reward(q, a, c): return float(len(c))")["signal", "warn"]
    assert warned.message.startswith("a huge completion scored 250000")


def test_a_secret_comes_from_its_own_prefix_and_never_from_our_variables(check, monkeypatch):
    monkeypatch.setenv("ARENA_WORKER_TOKEN", "ours")
    failed = check(GOOD, secrets=("ARENA_WORKER_TOKEN",))["import", "fail"]
    assert failed.message.endswith("set ARENA_SECRET_ARENA_WORKER_TOKEN")
    monkeypatch.setenv("ARENA_SECRET_JUDGE_KEY", "x")
    assert ("import", "pass") in check(f"import os\nos.environ['JUDGE_KEY']\n{GOOD}", secrets=("JUDGE_KEY",))


def test_a_servers_check_reads_a_reward_with_secrets_and_does_not_run_it(check, monkeypatch):
    monkeypatch.setenv("ARENA_SECRET_JUDGE_KEY", "x")
    ran = f"raise SystemExit('it ran')\n{GOOD}"
    found = check(ran, secrets=("JUDGE_KEY",), stored={"JUDGE_KEY"})
    assert "only a run is given" in found["secrets", "warn"].message
    assert not [key for key in found if key[1] == "fail"]


def test_a_servers_check_says_which_secrets_it_lacks(check):
    found = check(GOOD, secrets=("JUDGE_KEY", "OTHER"), stored={"OTHER"})["secrets", "fail"]
    assert found.message.endswith("does not have: JUDGE_KEY; use arena secrets set JUDGE_KEY")


def test_a_file_outside_the_repository_is_refused(check):
    found = check(GOOD, files={"../r.py": "sha256:" + "0" * 64})
    assert found["files", "fail"].message == "'../r.py' is not a path inside the repository"


@pytest.mark.parametrize(
    ("algorithm", "category", "status", "part"),
    [
        ("GRPO", "reasoning", "pass", ""),
        ("SFT", "sft", "pass", ""),
        ("GRPO", "sft", "fail", "dataset/d is sft, which fits SFT"),
        ("SFT", "reasoning", "fail", "SFT trains on category sft (columns prompt, target)"),
    ],
)
def test_the_datasets_category_must_fit_the_algorithm(check, algorithm, category, status, part):
    found = check(GOOD, algorithm=algorithm, category=category)
    assert part in found["match", status].message


def test_every_sample_is_recorded_with_its_score(check):
    cases = [
        RewardCase(question="q", answer="#### 72", completion="it is 72", expect=1.0),
        RewardCase(question="q", answer="#### 72", completion="it is 71", expect=1.0),
    ]
    found = check(GOOD, cases=cases)
    assert [(s.sample, s.expect, s.total) for s in found["cases", "fail"].scores] == [
        ("case 1: 'it is 72'", 1.0, 1.0),
        ("case 2: 'it is 71'", 1.0, 0.0),
    ]
    probes = found["probes", "pass"].scores
    assert probes[0].sample == "probe 1: the gold answer"
    assert len({score.sample for score in probes}) == len(probes)


def test_a_score_that_is_no_number_is_recorded_in_words(check):
    case = RewardCase(question="q", answer="a", completion="c", expect=1.0)
    (score,) = check("def reward(q, a, c): return 1 / (len(c) - 1)", cases=[case])["cases", "fail"].scores
    assert score.total is None
    assert "ZeroDivisionError" in score.error


def test_a_reward_for_style_is_not_asked_for_right_answers(check):
    found = check("def reward(q, a, c): return float(5 <= len(c.split()) <= 50)")
    assert "it does not read the answer" in found["discrimination", "pass"].message
    assert not [key for key in found if key[1] != "pass" and key[0] != "sandbox"]


def test_what_never_ran_is_said_not_to_be_judged(check):
    source = """
def reward(question, answer, completion):
    if sum(map(ord, completion)) % 9973 != 77:
        return 0.1 * (len(completion) > 40)
    return 1.0 if answer in completion else 0.0
"""
    found = check(source)
    assert "a case with one would show it" in found["discrimination", "pass"].message


def test_an_answer_that_was_read_and_made_no_difference_is_warned_about(check):
    source = """
def reward(question, answer, completion):
    right = answer in completion
    return 0.1 * (len(completion) > 40) + 0 * right
"""
    assert "on 0 of 2 rows" in check(source)["discrimination", "warn"].message


def test_a_form_in_several_pieces_is_found_by_what_is_paid(check):
    source = """
def reward(question, answer, completion):
    if "PLAN" not in completion or "result" not in completion:
        return 0.0
    tail = completion.split("PLAN")[1]
    return 1.0 if tail.strip().endswith("result=" + answer.split()[-1]) else 0.2
"""
    assert ("discrimination", "pass") in check(source)


def test_a_length_penalty_is_no_window(check):
    source = """
import re
def reward(question, answer, completion):
    found = re.findall(r"<answer>([0-9]+)</answer>", completion)
    right = bool(found) and found[-1] == answer.split()[-1]
    return right * max(0.0, 1.0 - len(completion) / 2000)
"""
    found = check(source)
    assert ("robustness", "pass") in found
    assert ("robustness", "warn") not in found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("open('/tmp/notes.txt', 'a').write(c)", "it writes /tmp/notes.txt"),
        ("os.environ['SEEN'] = 'yes'", "it sets the environment variable SEEN"),
        ("socket.create_connection(('10.0.0.1', 80), timeout=0.1)", "it connects to "),
        ("os.mkdir('/tmp/kept')", "it changes /tmp/kept"),
    ],
)
def test_what_a_call_touches_is_told_also_where_it_is_refused_in_silence(check, body, said):
    source = f"""
import contextlib, os, socket
def reward(q, a, c):
    with contextlib.suppress(OSError):
        {body}
    return float(c.strip() == a.strip())
"""
    warned = check(source)["effects", "warn"]
    assert warned.message.startswith(said)
    assert warned.file == "rewards/r.py"


HIDDEN = """
import builtins
def reward(q, a, c):
    try:
        return float(vars(builtins)["ev" + "al"](c.strip()) == int(a.split()[-1]))
    except Exception:
        return 0.0
"""


def test_text_of_the_model_that_is_run_is_seen_by_whatever_way_it_came_there(check):
    assert check(HIDDEN)["effects", "warn"].message.startswith("it runs what the model wrote as code")


def test_literals_and_named_tuples_run_nothing_of_the_models(check):
    source = """
import ast, collections
def reward(q, a, c):
    kind = collections.namedtuple("kind", "x")
    try:
        return float(kind(ast.literal_eval(c.strip())).x == int(a.split()[-1]))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return 0.0
"""
    assert ("effects", "pass") in check(source)


def test_an_answer_that_is_looked_for_in_the_question_is_warned_about(check):
    source = """
def reward(question, answer, completion):
    gold = question.split("####")[-1].strip()
    return float(completion.split()[-1:] == [gold])
"""
    warned = check(source)["discrimination", "warn"]
    assert warned.message == "it looks for '####' in the question, where no row has it; the answers have it"


def test_what_a_reward_takes_is_told(check):
    found = check(GOOD)
    assert "for a usual completion" in found["cost", "pass"].message
    assert found["effects", "pass"].message.startswith("it writes no file")
