"""Verdicts about what calls of a reward took."""

from __future__ import annotations

import pytest

from arena_runner.checks.effects import MIB, taken
from arena_runner.sandbox import Watched


@pytest.mark.parametrize(
    ("seconds", "peak", "network", "status"),
    [
        (0.001, 20 * MIB, "none", "pass"),
        (1.5, 20 * MIB, "none", "warn"),
        (1.5, 20 * MIB, "full", "pass"),
        (0.001, 2000 * MIB, "none", "warn"),
    ],
)
def test_slow_or_greedy_rewards_are_warned_about_and_judges_may_be_slow(seconds, peak, network, status):
    found = {r.name: r for r in taken({"the gold answer": Watched(seconds, peak, ())}, network)}
    assert found["cost"].status == status


def test_who_declares_the_network_may_connect_and_may_not_write():
    calls = {"a": Watched(0.1, MIB, ("connects to judge.example", "writes /tmp/x"))}
    (warned,) = [r for r in taken(calls, "full") if r.name == "effects"]
    assert warned.message.startswith("it writes /tmp/x (on a)")
