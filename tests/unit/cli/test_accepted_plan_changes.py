"""`arena ci apply --accept-plan-change`: what may differ from the plan that was merged."""

from __future__ import annotations

import pytest
from stacks import small

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.cli.ci.approval import Accept, Approval
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.report.marker import Marker, signatures


@pytest.mark.parametrize(
    ("merged", "now", "harmless"),
    [
        (small(description="a"), small(description="b"), True),
        (small(description="a"), small(set={"algorithm.lr": 3e-5}), False),
        (small(description="a"), small(description="a").without("deployment/words"), False),
        (small(set={"algorithm.lr": 3e-5}), small(set={"algorithm.lr": 3e-5}, description="b"), False),
    ],
    ids=["metadata", "training", "removal", "training as well"],
)
def test_only_what_costs_and_ends_nothing_is_harmless(merged, now, harmless):
    world = World(MemoryPlatform())
    apply(world, plan(world, small().state(), target="prod"), small().state(), Consent.APPROVED)
    approved, found = (plan(world, stack.state(), target="prod") for stack in (merged, now))
    marker = Marker(
        target="prod", root="", plan_id=approved.plan_id, head="", base="", changes=signatures(approved)
    )
    assert Approval(None, 7, None, marker).may_change_to(found, Accept.NO_COST) is harmless
