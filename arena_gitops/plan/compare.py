"""What is no longer as in an earlier plan: for a review that has to be given again.

Two plans agree on a resource when they would do the same to it from the same stored state; prices, progress and
lines of files do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from arena_gitops.plan.model import Action, Change, CheckStatus, Plan, plan_id
from arena_gitops.spec.resource import Frozen


class PlanDifference(Frozen):
    """One resource, or check, on which two plans do not agree."""

    address: str
    """of a resource, or the name of a check"""
    op: Literal["added", "removed", "changed"]
    old: str = ""
    """what the earlier plan does"""
    new: str = ""
    why: str = ""


def differences(before: Plan, now: Plan) -> tuple[PlanDifference, ...]:
    """Everything that a reviewer of the earlier plan has not seen."""
    return (*_changes(before, now), *_checks(before, now))


def _changes(before: Plan, now: Plan) -> Iterator[PlanDifference]:
    old, new = ({c.address: c for c in plan.changes if _counts(c)} for plan in (before, now))
    for address in dict.fromkeys((*new, *old)):
        was, is_now = old.get(address), new.get(address)
        if was is None and is_now is not None:
            yield PlanDifference(address=address, op="added", new=is_now.action.value, why=is_now.message)
        elif was is not None and is_now is None:
            yield PlanDifference(address=address, op="removed", old=was.action.value)
        elif was is not None and is_now is not None and _signature(before, was) != _signature(now, is_now):
            yield PlanDifference(
                address=address,
                op="changed",
                old=was.action.value,
                new=is_now.action.value,
                why=_why(was, is_now),
            )


def _checks(before: Plan, now: Plan) -> Iterator[PlanDifference]:
    old, new = (
        {c.name: c.message for c in plan.checks if c.status is CheckStatus.FAIL} for plan in (before, now)
    )
    for name in dict.fromkeys((*new, *old)):
        if name not in old:
            yield PlanDifference(address=name, op="added", new="fails", why=new[name])
        elif name not in new:
            yield PlanDifference(address=name, op="removed", old="fails")


def _counts(change: Change) -> bool:
    return change.action.acts or change.action is Action.BLOCKED


def _signature(plan: Plan, change: Change) -> str:
    return plan_id(
        platform=plan.platform, stack=plan.stack, namespace=plan.namespace, changes=(change,), checks=()
    )


def _why(was: Change, now: Change) -> str:
    if was.action is not now.action:
        return now.message
    if was.preconditions != now.preconditions:
        return "it has been changed on the platform meanwhile"
    moved = {f.path: f.new for f in now.fields}
    told = [path for path in moved if moved[path] != {f.path: f.new for f in was.fields}.get(path)]
    return f"other content: {', '.join(told[:3])}" if told else "other content"
