"""How far what is declared may grow: its whole, what a plan adds to it, and that as a part of what there was.

The measure is what training everything once can cost. It moves with tiers, nodes, budgets and the number of experiments,
not with how often something is trained, which `policy.max_credits_per_pr` is about.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena_gitops.plan.model import CheckOutcome, CheckStatus, PlanCost
from arena_gitops.state import Policy


def checks(policy: Policy, cost: PlanCost) -> Iterable[CheckOutcome]:
    """The three limits, as far as they are set; a part of nothing is not looked at."""
    before, now = cost.declared_before, cost.declared
    more = round(now - before, 4)
    part = round(100 * more / before, 1) if before else None
    grown = f"from {before:,.10g} to {now:,.10g} credits for training everything once"
    found = (
        ("declared", policy.max_credits_declared, now, f"{now:,.10g} credits for training everything once"),
        ("increase", policy.max_credits_increase, more, f"{more:+,.10g}, {grown}"),
        ("increase_percent", policy.max_credits_increase_percent, part, f"{part or 0:+,.10g} %, {grown}"),
    )
    for name, limit, amount, said in found:
        if limit is None or amount is None:
            continue
        status, message = CheckStatus.PASS, said
        if amount > limit:
            unit = " %" if name.endswith("percent") else ""
            status, message = CheckStatus.FAIL, f"{said}; {limit:,.10g}{unit} allowed"
        elif cost.declared_unknown:
            status = CheckStatus.WARN
            message = f"{said}, without those whose ceiling is not known: {cost.declared_unknown}"
        yield CheckOutcome(name=f"policy.max_credits_{name}", status=status, message=message)
