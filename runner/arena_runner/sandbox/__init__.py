"""User code in its own limited process. See `pool.RewardPool`; what runs inside is `child.py`."""

from __future__ import annotations

from arena_runner.sandbox.box import inside
from arena_runner.sandbox.limits import Limits, Wall
from arena_runner.sandbox.pool import RewardPool
from arena_runner.sandbox.score import RewardError, Score, ScoreRow, Watched
from arena_runner.sandbox.secrets import from_environment, secret_values

__all__ = [
    "Limits",
    "RewardError",
    "RewardPool",
    "Score",
    "ScoreRow",
    "Wall",
    "Watched",
    "from_environment",
    "inside",
    "secret_values",
]
