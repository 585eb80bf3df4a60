"""Which lines of a reward ran on what was tried: what never ran has not been judged.

The reward is called by a file of ours beside it, in the same sandbox, which gives the lines that ran as the parts of a
score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arena_gitops.spec.job import RewardInput
from arena_runner.sandbox import Limits, RewardError, RewardPool, Score, ScoreRow

OURS = "arena_traced_reward.py"
PROGRAM = """
import importlib.util, os, sys

ROOT = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(ROOT, {entry!r})
sys.path.insert(0, os.path.dirname(PATH))
spec = importlib.util.spec_from_file_location("arena_reward_itself", PATH)
module = importlib.util.module_from_spec(spec)
sys.modules["arena_reward_itself"] = module
spec.loader.exec_module(module)


def reward(question, answer, completion):
    ran = set()

    def each(frame, event, arg):
        ran.add(frame.f_lineno)
        return each

    def entered(frame, event, arg):
        return each if frame.f_code.co_filename == PATH else None

    sys.settrace(entered)
    try:
        module.{function}(question, answer, completion)
    finally:
        sys.settrace(None)
    return {{str(line): 1.0 for line in ran or [0]}}
"""


def lines_run(reward: RewardInput, files: Path, rows: Sequence[ScoreRow], limits: Limits) -> frozenset[int]:
    """Lines of the entry file that ran on any of these; none where the reward cannot be called this way."""
    if not reward.function.isidentifier():
        return frozenset()
    ours = files / OURS
    ours.write_text(PROGRAM.format(entry=reward.entry, function=reward.function), encoding="utf-8")
    traced = reward.model_copy(
        update={"entry": OURS, "function": "reward", "files": {**reward.files, OURS: "sha256:" + "0" * 64}}
    )
    try:
        with RewardPool(traced, files, limits=limits) as pool:
            outcomes = pool.score_each(rows, hangs=1)
    except RewardError:
        return frozenset()
    finally:
        ours.unlink()
    return frozenset(int(line) for o in outcomes if isinstance(o, Score) for line in o.components)
