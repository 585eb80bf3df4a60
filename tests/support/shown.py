"""Plans as GitHub is shown them, and text that strangers would like to break out of it with."""

import re

from hypothesis import strategies as st

from arena_gitops.plan.diff import Op
from arena_gitops.plan.model import (
    Action,
    Change,
    FieldChange,
    Plan,
    PlanCost,
    Range,
)
from arena_gitops.report import github
from arena_gitops.spec.lifecycle import FieldClass

PLAN_ID = "sha256:" + "ab" * 32
PLACE = github.Place("prod", "infra", "c0ffee" * 6, "beef" * 10, "https://github.example/run/1")
SPECIAL = "@#|`<>!-[](){}*_~\\&$:%,\r\n\t\u202e\u200b\x1b ab1/'\"="
HOSTILE = st.text(SPECIAL, max_size=40) | st.text(max_size=40)
OUR_HTML = re.compile(
    r"<!-- arena:plan v1 [^\n]* -->|<details><summary>(?:(?:Details|Code|Unchanged) \(\d+\)|\d+ resources)</summary>|</details>|</?sub>"
)


def plan_of(*changes, checks=(), diagnostics=(), applyable=True):
    counts = dict.fromkeys([*(a.value for a in Action), "unchanged"], 0)
    for change in changes:
        counts[change.action.value] += 1
    return Plan(
        plan_id=PLAN_ID,
        target="prod",
        platform="http",
        stack="team",
        namespace="main",
        applyable=applyable,
        summary=counts,
        cost=PlanCost(max_new=118.3),
        changes=changes,
        checks=checks,
        diagnostics=diagnostics,
    )


def change(address="experiment/words", action=Action.CREATE, **fields):
    severity = action.severity
    return Change(address=address, action=action, reason="r", severity=severity, **fields)


def field(path="algorithm.lr", old=1e-5, new=2e-5):
    return FieldChange(
        path=path,
        cls=FieldClass.SEMANTIC,
        op=Op.REPLACE,
        old=old,
        new=new,
        action=Action.NEW_VERSION,
        reason="semantic",
        range=Range(filename="manifests/words.yaml", line=3, column=5),
    )


def many(count):
    """300 changes with long words; among them one undeploy and one interruption."""
    addresses = [f"experiment/{'long-name-' * 4}{n:04}" for n in range(count)]
    told = [
        change(
            address,
            Action.NEW_VERSION,
            message=f"{n} {'m' * 385}",
            fields=tuple(field(f"set.key_{k}", old=n) for k in range(9)),
        )
        for n, address in enumerate(addresses)
    ]
    told += [
        change("deployment/old", Action.DESTROY),
        change("experiment/busy", Action.NEW_VERSION, interrupts=True),
    ]
    quiet = [change(f"dataset/d{n}", Action.NOOP, message="runs, step 5") for n in range(count)]
    return plan_of(*told, *quiet)
