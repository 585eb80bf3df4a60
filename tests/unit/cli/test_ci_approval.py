"""What may take the place of an approved plan: nothing, what costs nothing, or anything that is not forbidden."""

from __future__ import annotations

import pytest

from arena_gitops.cli.ci.approval import Accept, Approval
from arena_gitops.plan.model import Action, Change, Cost, Plan, plan_id
from arena_gitops.platforms.github import Comment
from arena_gitops.report.marker import Marker, signatures


def plan_of(*changes, applyable=True):
    made = plan_id(platform="p", stack="s", namespace="main", changes=changes, checks=())
    known = {"target": "prod", "platform": "p", "stack": "s", "namespace": "main"}
    return Plan(plan_id=made, **known, applyable=applyable, summary={}, changes=changes)


def change(address, action, **more):
    return Change(address=address, action=action, reason="r", **more)


def approval(approved):
    marker = Marker(target="prod", root="", plan_id=approved.plan_id, head="h", base="b")
    marker = marker.model_copy(update={"changes": signatures(approved)})
    return Approval(None, 7, Comment(id=1), marker)  # GitHub plays no part in the decision


BEFORE = plan_of(change("experiment/a", Action.CREATE), change("dataset/d", Action.UPDATE))


def test_the_approved_plan_its_rest_and_nothing_left_are_covered():
    approved = approval(BEFORE)
    assert approved.covers(BEFORE)
    assert approved.covers(plan_of(change("dataset/d", Action.UPDATE)))
    assert approved.covers(plan_of(change("dataset/d", Action.NOOP)))
    assert not approved.covers(plan_of(change("dataset/d", Action.RETIRE)))


@pytest.mark.parametrize(
    ("more", "free"),
    [
        (change("project/p", Action.UPDATE), True),
        (change("experiment/b", Action.UPDATE), True),
        (change("experiment/b", Action.REUSE), True),
        (change("deployment/w", Action.PROMOTE), True),
        (change("deployment/w", Action.CREATE, cost=Cost(rate=0.0, basis="1 node")), True),
        (change("deployment/w", Action.CREATE, cost=Cost(rate=2.4, basis="1 node")), False),
        (change("deployment/w", Action.CREATE, cost=Cost(basis="price unknown")), False),
        (change("experiment/b", Action.CREATE, cost=Cost(max=0.0, basis="free tier")), False),
        (change("experiment/b", Action.UPDATE, interrupts=True), False),
        (change("dataset/d", Action.RETIRE), False),
        (change("deployment/w", Action.DESTROY), False),
    ],
    ids=lambda one: f"{one.action}-{one.address}" if isinstance(one, Change) else "",
)
def test_what_trains_costs_stops_or_removes_needs_another_approval(more, free):
    now = plan_of(*(c for c in BEFORE.changes if c.address != more.address), more)
    assert approval(BEFORE).may_change_to(now, Accept.NO_COST) is free
    assert approval(BEFORE).may_change_to(now, Accept.ANY)
    assert not approval(BEFORE).may_change_to(now, Accept.NOTHING)
    assert not approval(BEFORE).may_change_to(now.model_copy(update={"applyable": False}), Accept.ANY)


def test_where_the_approved_changes_are_not_known_everything_counts_as_changed():
    unknown = approval(BEFORE)
    unknown = Approval(None, 7, unknown.comment, unknown.marker.model_copy(update={"changes": None}))
    assert not unknown.may_change_to(
        plan_of(*BEFORE.changes, change("project/p", Action.UPDATE)), Accept.NO_COST
    )
