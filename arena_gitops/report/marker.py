"""The hidden first line of our comment: whose plan it shows, and which plan a reviewer approved by merging.

`<!-- arena:plan v1 {…} -->`. Anybody can paste such a line into a comment, so it counts only in a comment of
our own author; that is the reader's check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import ValidationError

from arena_gitops.plan.model import Action, Plan, plan_id
from arena_gitops.spec.resource import Frozen

SIGNATURE_DIGITS = 24
MOST_CHANGES_BYTES = 24_000
"""Signatures of single changes are for telling a difference; a plan with more of them does without."""

_LINE = re.compile(r"\A<!-- arena:plan v1 (\{[^\n]*\}) -->(?:\n|\Z)")

State = Literal["open", "applied", "superseded"]


class Marker(Frozen):
    """What a comment is about."""

    target: str
    root: str
    """of the stack within the git repository; empty for its top"""
    plan_id: str | None
    """None: there was no plan to show"""
    head: str
    base: str
    truncated: bool = False
    state: State = "open"
    changes: Mapping[str, str] | None = None
    """address → signature of what is done to it; None where that would take too much room"""

    def render(self) -> str:
        """The line; nothing in it can end the HTML comment that it is."""
        text = json.dumps(self.model_dump(mode="json"), separators=(",", ":"), sort_keys=True)
        for character in "<>-":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return f"<!-- arena:plan v1 {text} -->"

    @classmethod
    def find(cls, body: str) -> Self | None:
        """The marker a comment begins with, if it is one."""
        found = _LINE.match(body.replace("\r\n", "\n"))
        if found is None:
            return None
        try:
            return cls.model_validate_json(found[1])
        except ValidationError:
            return None


def signatures(plan: Plan) -> dict[str, str]:
    """What is done to each resource, as a digest that changes whenever the plan's id would because of it."""
    return {
        change.address: plan_id(
            platform=plan.platform,
            stack=plan.stack,
            namespace=plan.namespace,
            changes=(change,),
            checks=(),
        ).removeprefix("sha256:")[:SIGNATURE_DIGITS]
        for change in plan.changes
        if change.action.acts or change.action is Action.BLOCKED
    }


def fitting(found: Mapping[str, str]) -> Mapping[str, str] | None:
    """The same if a comment has room for it."""
    room = sum(len(address) + len(digest) + 6 for address, digest in found.items())
    return found if room <= MOST_CHANGES_BYTES else None
