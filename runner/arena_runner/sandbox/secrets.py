"""Values of the secrets a reward names: `JUDGE_KEY` is read from `ARENA_SECRET_JUDGE_KEY` and from nowhere else.

The prefix is the point: a reward must not get at our own tokens, or at any other variable, by naming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena_runner.sandbox.score import RewardError

PREFIX = "ARENA_SECRET_"


def secret_values(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Name → value; raises RewardError naming the variables that are not set."""
    wanted = tuple(names)
    missing = [PREFIX + name for name in wanted if PREFIX + name not in environment]
    if missing:
        raise RewardError(f"the reward names secrets that have no value here; set {', '.join(missing)}")
    return {name: environment[PREFIX + name] for name in wanted}
