"""Checks before money is spent: the dataset, the reward, and whether they fit the algorithm. See `run.run_checks`."""

from __future__ import annotations

from arena_runner.checks.report import summarise
from arena_runner.checks.run import run_checks

__all__ = ["run_checks", "summarise"]
