"""What a plan as a whole may do: budgets, places and people, as `arena.yaml` and the command line say.

A check passes, warns or fails; a plan with a failed one is not applyable (exit 3). Where something is unknown, a
check warns: it neither passes nor stands in the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arena_gitops.plan import guardrails, limits
from arena_gitops.plan.classify import TRAINED, spec_at
from arena_gitops.plan.cost import tier_of
from arena_gitops.plan.model import Change, CheckOutcome, CheckStatus, PlanCost
from arena_gitops.plan.safety import ALLOW_EMPTY, ALLOW_REMOVALS
from arena_gitops.plan.scope import Scope
from arena_gitops.state import DesiredResource, DesiredState, ObservedState, Policy

REMOVED = "removed_from_repo"
REMOVALS = "removals"
"""Name of the check that many removals at once do not pass."""
REMOVED_AT_MOST = 0.3
"""Part of what a stack owns that one plan may remove without being asked for it."""
GUARDED_FROM = 10
"""Resources from which on that part is looked at; of three, one is quickly a third."""
PLACED = frozenset({TRAINED, "deployment"})
"""Kinds that run on a tier."""


def checks(
    desired: DesiredState,
    observed: ObservedState,
    changes: Sequence[Change],
    cost: PlanCost,
    *,
    allow: frozenset[str],
    scope: Scope,
) -> list[CheckOutcome]:
    """Every rule over everything that would change."""
    touched = [
        desired.resources[change.at]
        for change in changes
        if change.action.acts and change.at in desired.resources
    ]
    policy = desired.policy
    return [
        *_removals(observed, changes, allow),
        *_within("policy.max_credits_per_pr", policy.max_credits_per_pr, cost),
        *_within("budget", scope.budget, cost),
        *_month(policy, observed, cost),
        *_balance(cost),
        *guardrails.checks(policy, cost),
        *_tiers(policy, touched),
        *_nodes(policy, touched),
        *_owners(policy, touched),
        *_floating(policy, touched),
        *_floating_models(policy, touched),
        *_networks(policy, touched),
        *_secrets(policy, touched),
        *_offered(observed, touched),
        *_regions(observed, touched),
        *_fit(changes),
        *limits.checks(observed, touched),
    ]


def _removals(
    observed: ObservedState, changes: Sequence[Change], allow: frozenset[str]
) -> Iterable[CheckOutcome]:
    """Files that are gone: an accident is not asked for."""
    removed = sum(change.action.removes and change.reason == REMOVED for change in changes)
    yield from many_removals(len(observed.resources), removed, allow, seen=False)


def many_removals(owned: int, removed: int, allow: frozenset[str], *, seen: bool) -> Iterable[CheckOutcome]:
    """Many removals at once are more often an accident than a wish.

    Where they were asked for (`seen`), only whoever does not look at the plan has to say so again.
    """
    few = owned < GUARDED_FROM or removed <= owned * REMOVED_AT_MOST
    if few or allow & {ALLOW_REMOVALS, ALLOW_EMPTY}:
        return
    asked = "with --yes this needs" if seen else "if that is meant, add"
    share = f"{removed} of {owned} resources would be removed, more than {REMOVED_AT_MOST:.0%}"
    status = CheckStatus.WARN if seen else CheckStatus.FAIL
    yield CheckOutcome(name=REMOVALS, status=status, message=f"{share}; {asked} --allow removals")


def _within(
    name: str, limit: float | None, cost: PlanCost, spent: float = 0.0, *, word: str = "allowed"
) -> Iterable[CheckOutcome]:
    """Whether what a plan can cost at most, with what has been spent, is within a limit."""
    if limit is None:
        return
    before = f" beside {spent:,.10g} spent" if spent else ""
    if cost.max_new + spent > limit:
        message = f"up to {cost.max_new:,.10g} credits{before}, {limit:,.10g} {word}"
        yield CheckOutcome(name=name, status=CheckStatus.FAIL, message=message)
    elif cost.unknown:
        message = f"without a known ceiling: {cost.unknown}; set budget.max_runtime, and a tier with a price"
        yield CheckOutcome(name=name, status=CheckStatus.WARN, message=message)
    else:
        message = f"up to {cost.max_new:,.10g}{before} of {limit:,.10g} credits"
        yield CheckOutcome(name=name, status=CheckStatus.PASS, message=message)


def _month(policy: Policy, observed: ObservedState, cost: PlanCost) -> Iterable[CheckOutcome]:
    name, limit = "policy.max_credits_per_month", policy.max_credits_per_month
    if limit is None or not (cost.max_new or cost.unknown):
        return
    if observed.spent_this_month is None:
        message = "this platform does not say what was spent this month"
        yield CheckOutcome(name=name, status=CheckStatus.WARN, message=message)
    yield from _within(name, limit, cost, observed.spent_this_month or 0.0)


def _balance(cost: PlanCost) -> Iterable[CheckOutcome]:
    """Whether what the plan can cost at most is there to be spent."""
    if cost.balance is not None and (cost.max_new or cost.unknown):
        yield from _within("balance", cost.balance, cost, word="left")


def _tiers(policy: Policy, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    if not policy.tiers:
        return
    wrong = [r for r in touched if r.address.kind in PLACED and r.spec.get("tier") not in policy.tiers]
    named = "; ".join(f"{r.address} asks for {r.spec.get('tier') or 'no tier'}" for r in wrong)
    status = CheckStatus.FAIL if wrong else CheckStatus.PASS
    message = f"{named}; allowed: {', '.join(policy.tiers)}" if wrong else ""
    yield CheckOutcome(name="policy.tiers", status=status, message=message)


def _fit(changes: Sequence[Change]) -> Iterable[CheckOutcome]:
    """Runs that may turn out too large for their place."""
    tight = [
        f"{change.address} needs {change.fit.least_gib:.3g} to {change.fit.most_gib:.3g} of {change.fit.have_gib:.3g} GiB"
        for change in changes
        if change.action.acts and change.fit is not None and change.fit.verdict == "tight"
    ]
    if tight:
        yield CheckOutcome(name="fit", status=CheckStatus.WARN, message="; ".join(tight))


def _nodes(policy: Policy, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    if policy.max_nodes is None:
        return
    wide = [
        f"{r.address} asks for {r.spec['num_nodes']}"
        for r in touched
        if r.address.kind == TRAINED and int(r.spec.get("num_nodes") or 1) > policy.max_nodes
    ]
    message = f"{'; '.join(wide)}; {policy.max_nodes} allowed" if wide else ""
    status = CheckStatus.FAIL if wide else CheckStatus.PASS
    yield CheckOutcome(name="policy.max_nodes", status=status, message=message)


def _floating(policy: Policy, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    """Rows of the hub that can change without a commit here."""
    if policy.floating_dataset == "allow":
        return
    loose = [
        str(r.address)
        for r in touched
        if r.address.kind == "dataset"
        and spec_at(r.spec, "hf") is not None
        and spec_at(r.spec, "hf.revision") is None
    ]
    found = CheckStatus.FAIL if policy.floating_dataset == "forbid" else CheckStatus.WARN
    message = f"no hf.revision: {', '.join(loose)}; write the commit of the rows" if loose else ""
    status = found if loose else CheckStatus.PASS
    yield CheckOutcome(name="policy.floating_dataset", status=status, message=message)


def _floating_models(policy: Policy, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    """Base models of the hub that are another one tomorrow; what has been trained keeps to its revision."""
    if policy.floating_model == "allow":
        return
    loose = [
        f"{r.address} starts from {model['id']}"
        for r in touched
        if r.address.kind == TRAINED
        and (model := r.spec.get("model"))
        and "/" in model["id"]
        and model["revision"] is None
    ]
    found = CheckStatus.FAIL if policy.floating_model == "forbid" else CheckStatus.WARN
    message = f"no model.revision: {'; '.join(loose)}; write the commit of the model" if loose else ""
    status = found if loose else CheckStatus.PASS
    yield CheckOutcome(name="policy.floating_model", status=status, message=message)


def _regions(observed: ObservedState, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    """Experiments that must be trained somewhere, on a tier that is elsewhere or does not say where it is."""
    asked = [r for r in touched if r.address.kind == TRAINED and r.spec.get("region")]
    for resource in asked if observed.tiers else ():
        tier, region = tier_of(resource, observed.tiers), resource.spec["region"]
        if tier is not None and tier.region != region:
            where = "says no region" if tier.region is None else f"is in {tier.region}"
            message = f"{resource.address} asks for {region}, tier {tier.id} {where}"
            yield CheckOutcome(name="region", status=CheckStatus.FAIL, message=message)


def _networks(policy: Policy, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    """Code that may tell others what it sees."""
    if policy.reward_network == "allow":
        return
    open_ = [
        str(r.address) for r in touched if r.address.kind == "reward" and r.spec.get("network") == "full"
    ]
    found = CheckStatus.FAIL if policy.reward_network == "forbid" else CheckStatus.WARN
    message = f"network: full: {', '.join(open_)}; their code may reach other machines" if open_ else ""
    yield CheckOutcome(
        name="policy.reward_network", status=found if open_ else CheckStatus.PASS, message=message
    )


def _secrets(policy: Policy, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    if policy.reward_secrets is None:
        return
    allowed = frozenset(policy.reward_secrets)
    asked = {
        str(r.address): sorted({*r.spec.get("secrets", ())} - allowed)
        for r in touched
        if r.address.kind == "reward"
    }
    beyond = "; ".join(f"{address} asks for {', '.join(names)}" for address, names in asked.items() if names)
    message = f"{beyond}; allowed: {', '.join(policy.reward_secrets) or 'none'}" if beyond else ""
    status = CheckStatus.FAIL if beyond else CheckStatus.PASS
    yield CheckOutcome(name="policy.reward_secrets", status=status, message=message)


def _owners(policy: Policy, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    if not policy.require_owner:
        return
    nobody = [str(r.address) for r in touched if r.address.kind == TRAINED and not r.spec.get("owner")]
    status = CheckStatus.FAIL if nobody else CheckStatus.PASS
    message = f"no owner: {', '.join(nobody)}" if nobody else ""
    yield CheckOutcome(name="policy.require_owner", status=status, message=message)


def _offered(observed: ObservedState, touched: Iterable[DesiredResource]) -> Iterable[CheckOutcome]:
    if not observed.tiers:
        return
    absent = [
        f"{r.address} names {r.spec['tier']}"
        for r in touched
        if r.address.kind in PLACED and r.spec.get("tier") is not None and tier_of(r, observed.tiers) is None
    ]
    if absent:
        message = f"{'; '.join(absent)}; this platform offers {', '.join(sorted(observed.tiers))}"
        yield CheckOutcome(name="tier", status=CheckStatus.WARN, message=message)
