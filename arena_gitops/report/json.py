"""A plan for machines: the canonical document, one line."""

from __future__ import annotations

from arena_gitops.plan.model import Plan


def render(plan: Plan) -> str:
    """The plan document; equal plans are equal text."""
    return plan.to_json().decode()
