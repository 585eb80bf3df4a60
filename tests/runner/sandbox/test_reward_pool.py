"""What a well-meant reward can do, and how its faults are told."""

from __future__ import annotations

import os
import resource
import time
from contextlib import ExitStack

import pytest

from arena_gitops.spec.job import RewardInput
from arena_runner.sandbox import Limits, RewardError, RewardPool, Score, ScoreRow

ROW = ScoreRow("What is 8 * 9?", "#### 72", "It is 72")

REGEX = """
import re

def reward(question, answer, completion):
    numbers = re.findall(r"-?[0-9]+", completion)
    return 1.0 if numbers and numbers[-1] == answer.split("####")[1].strip() else 0.0
"""


def test_a_float_is_the_total(pool_of):
    with pool_of(REGEX) as pool:
        assert pool.score([ROW, ScoreRow("q", "#### 1", "2")]) == [Score(1.0), Score(0.0)]


def test_a_dict_is_summed_and_kept_by_name(pool_of):
    with pool_of("def reward(q, a, c): return {'correct': 1, 'brevity': 0.25}") as pool:
        assert pool.score([ROW]) == [Score(1.25, {"correct": 1.0, "brevity": 0.25})]


def test_a_reward_without_its_file_is_a_fault_of_the_reward(tmp_path):
    nothing = RewardInput(address="reward/r", files={}, entry="r.py")
    with pytest.raises(RewardError, match=r"r\.py"), RewardPool(nothing, tmp_path):
        pass


def test_a_server_with_very_many_open_files_can_still_score(pool_of):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2000), hard), hard))
    with ExitStack() as open_files:
        for _ in range(1200):
            open_files.enter_context(open(os.devnull))  # noqa: PTH123 - a plain descriptor
        with pool_of(REGEX) as pool:
            assert pool.score([ROW]) == [Score(1.0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_scores_keep_the_order_of_rows_across_workers(pool_of):
    rows = [ScoreRow("q", "a", str(number)) for number in range(333)]
    with pool_of("def reward(q, a, c): return int(c)", workers=3) as pool:
        assert [score.total for score in pool.score(rows)] == [float(number) for number in range(333)]


def test_repository_files_are_imported_from_the_root_and_from_beside_the_reward(pool_of):
    source = """
    from rewards.shared import half
    import beside
    def reward(q, a, c): return half(beside.VALUE)
    """
    extra = {"rewards/shared.py": "def half(x): return x / 2", "rewards/beside.py": "VALUE = 3"}
    with pool_of(source, extra=extra) as pool:
        assert pool.score([ROW]) == [Score(1.5)]


def test_a_file_named_like_a_standard_module_does_not_hide_it(pool_of):
    with pool_of("import walls\ndef reward(q, a, c): return walls.X", extra={"walls.py": "X = 2.0"}) as pool:
        assert pool.score([ROW]) == [Score(2.0)]


def test_text_of_any_alphabet_arrives_unchanged(pool_of):
    text = "ß漢字🙂\u0000\ud800\n" * 1000
    with pool_of("def reward(q, a, c): return sum(map(ord, c))") as pool:
        assert pool.score([ScoreRow("q", "a", text)]) == [Score(float(sum(map(ord, text))))]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("None", "the reward returned None (NoneType)"),
        ("True", "the reward returned True (bool)"),
        ("float('nan')", "the reward returned nan (float)"),
        ("float('inf')", "the reward returned inf (float)"),
        ("10 ** 400", "the reward returned 1000"),
        ("'1.0'", "the reward returned '1.0' (str)"),
        ("{}", "the reward returned an empty dict"),
        ("{'a': None}", "the reward's part 'a' is None (NoneType)"),
        ("{1: 1.0}", "the reward returned a dict with the key 1"),
        ("[1.0]", "the reward returned [1.0] (list)"),
    ],
)
def test_a_value_that_is_no_score_is_an_error_at_the_function(pool_of, value, said):
    with (
        pool_of(f"\n\ndef reward(q, a, c):\n    return {value}\n") as pool,
        pytest.raises(RewardError) as caught,
    ):
        pool.score([ROW])
    assert caught.value.message.startswith(said)
    assert (caught.value.file, caught.value.line) == ("rewards/mine.py", 3)
    assert str(caught.value).startswith("rewards/mine.py:3: ")


def test_an_exception_is_an_error_at_the_users_own_deepest_line(pool_of):
    source = """
    import json
    from rewards.shared import read
    def reward(q, a, c):
        return read(c)
    """
    extra = {"rewards/shared.py": "import json\ndef read(text):\n    return json.loads(text)['x']\n"}
    with pool_of(source, extra=extra) as pool, pytest.raises(RewardError) as caught:
        pool.score([ROW])
    assert (caught.value.file, caught.value.line) == ("rewards/shared.py", 3)
    assert caught.value.message.startswith("the reward raised JSONDecodeError: Expecting value")


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("x = 1\nimport no_such_module\n", 2, "the reward raised ModuleNotFoundError"),
        ("x = 1\n\ndef reward(:\n", 3, "the reward raised SyntaxError"),
        (
            "def score(q, a, c): return 1.0\n",
            1,
            "rewards/mine.py defines no function `reward`; its functions: score",
        ),
        (
            "def reward(completion): return 1.0\n",
            1,
            "a reward is called as reward(question, answer, completion)",
        ),
        ("import sys\nsys.exit(4)\n", 2, "the reward called sys.exit(4)"),
        ("import os\nos._exit(4)\n", 1, "importing the reward failed: it ended the process (exit code 4)"),
    ],
)
def test_a_file_that_cannot_be_imported_is_an_error_at_once(pool_of, source, line, said):
    with pytest.raises(RewardError) as caught, pool_of(source):
        pass
    assert caught.value.message.startswith(said)
    assert (caught.value.file, caught.value.line) == ("rewards/mine.py", line)


def test_an_import_that_hangs_is_an_error(pool_of):
    limits = Limits(import_timeout_s=1)
    with pytest.raises(RewardError, match="importing the reward took longer than 1 s"):
        pool_of("while True: pass", limits=limits).__enter__()


def test_one_bad_row_does_not_harm_the_others(pool_of):
    with pool_of("def reward(q, a, c): return 1 / int(c)") as pool:
        good, bad, last = pool.score_each([ScoreRow("q", "a", text) for text in "204"])
    assert (good, last) == (Score(0.5), Score(0.25))
    assert isinstance(bad, RewardError)
    assert bad.message == "the reward raised ZeroDivisionError: division by zero"


def test_a_worker_is_replaced_after_its_share_of_calls(pool_of):
    source = "calls = []\ndef reward(q, a, c):\n    calls.append(1)\n    return len(calls)\n"
    with pool_of(source, limits=Limits(calls_per_process=3)) as pool:
        totals = [score.total for _ in range(2) for score in pool.score([ROW] * 3)]
    assert totals == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]


def test_a_secret_reaches_only_the_reward_that_names_it(pool_of):
    source = "import os\ndef reward(q, a, c): return len(os.environ['JUDGE_KEY'])"
    with pool_of(source, secrets={"JUDGE_KEY": "12345"}) as pool:
        assert pool.score([ROW]) == [Score(5.0)]


SECRET = "s3cret-value-of-a-judge"


def test_what_a_reward_says_about_its_secret_is_told_without_the_value(pool_of):
    source = """
    import os
    print("at import", os.environ["JUDGE_KEY"])
    def reward(q, a, c):
        print("called with", os.environ["JUDGE_KEY"])
        if c == "raise":
            raise ValueError(os.environ["JUDGE_KEY"])
        if c == "die":
            os._exit(3)
        return {os.environ["JUDGE_KEY"]: 1.0}
    """
    with pool_of(source, secrets={"JUDGE_KEY": SECRET}) as pool:
        rows = [ScoreRow("q", "a", completion) for completion in ("raise", "die", "good")]
        raised, died, good = pool.score_each(rows)
    assert raised.message == "the reward raised ValueError: (secret JUDGE_KEY)"
    assert "called with (secret JUDGE_KEY)" in died.output
    assert good == Score(1.0, {"(secret JUDGE_KEY)": 1.0})
    assert SECRET not in f"{raised} {raised.output} {died} {died.output} {good}"


def test_an_import_that_fails_on_its_secret_does_not_tell_it(pool_of):
    source = "import os\nint(os.environ['JUDGE_KEY'])\ndef reward(q, a, c): return 1.0\n"
    with pytest.raises(RewardError, match="secret JUDGE_KEY") as caught:
        pool_of(source, secrets={"JUDGE_KEY": SECRET}).__enter__()
    assert SECRET not in f"{caught.value} {caught.value.output}"


def test_two_thousand_rewards_a_second(pool_of):
    rows = [ROW] * 2000
    with pool_of(REGEX) as pool:
        started = time.perf_counter()
        pool.score(rows)
    assert time.perf_counter() - started < 1.0
