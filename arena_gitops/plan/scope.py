"""What a plan was asked to be about, beside the repository: a part of the stack, work to be done again, an end.

It is written into the plan, so that applying a plan file means the same thing as planning did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from arena_gitops.errors import UsageError
from arena_gitops.plan.dependants import used_by
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.resource import Address, Frozen
from arena_gitops.state import DesiredResource, DesiredState, ObservedState

TRAINED = "experiment"


TAG = "tag:"
GIT = "git:"
NONE = "none"


class Scope(Frozen):
    """`--select`, `--rerun`, `--rerun-stale`, `--budget`, `destroy`; empty: the stack, as the repository says."""

    select: tuple[str, ...] = ()
    """`experiment/foo`, `tag:KEY[=VALUE]` or `none`; `+…` with what it builds on, `…+` with what builds on it.

    `git:REF` is resolved to addresses before it gets here: a plan does not read commits."""
    rerun: tuple[str, ...] = ()
    """experiments to train once more"""
    rerun_stale: tuple[str, ...] = ()
    """datasets, environments and rewards whose stale experiments are trained again"""
    budget: float | None = None
    """credits that the plan may cost at most"""
    destroy: bool = False
    """what is selected is taken off the platform, whatever the repository says"""
    purge: bool = False
    """with `destroy`: what was uploaded and trained goes with it"""

    @property
    def whole(self) -> bool:
        """Whether every resource is looked at."""
        return not self.select


def selected(scope: Scope, desired: DesiredState, observed: ObservedState) -> frozenset[Address]:
    """The addresses a plan is about.

    Raises:
        UsageError: an expression names nothing.
    """
    everything = frozenset({*desired.resources, *observed.resources})
    if scope.whole:
        return everything
    there = {address: used_by(document) for address, document in observed.resources.items()}
    here = {address: frozenset(found.depends_on) for address, found in desired.resources.items()}
    parents = here | there if scope.destroy else there | here
    children: dict[Address, set[Address]] = {}
    for address, above in parents.items():
        for parent in above:
            children.setdefault(parent, set()).add(address)
    chosen: set[Address] = set()
    for expression in scope.select:
        start = _meant(expression.removeprefix("+").removesuffix("+"), desired, everything)
        chosen |= start
        if expression.startswith("+"):
            chosen |= _reached(start, parents)
        if expression.endswith("+"):
            chosen |= _reached(start, children)
    return frozenset(chosen) & everything


def _meant(text: str, desired: DesiredState, everything: frozenset[Address]) -> set[Address]:
    """The addresses of one expression without its signs."""
    if text == NONE:
        return set()
    if not text.startswith(TAG):
        return {_known(text, "--select", everything)}
    key, _, value = text.removeprefix(TAG).partition("=")
    found = set()
    for address, resource in desired.resources.items():
        label = (resource.spec.get("labels") or {}).get(key)
        if label is not None and value in {"", str(label)}:
            found.add(address)
    if not found:
        raise UsageError(f"--select: no resource of this repository has the label {text.removeprefix(TAG)!r}")
    return found


def changed_since(expression: str, before: DesiredState | None, now: DesiredState) -> tuple[str, ...]:
    """`git:REF`, with its signs, as the addresses that are not as they were in that commit; `none` if all are."""
    first = "+" if expression.startswith("+") else ""
    last = "+" if expression.endswith("+") else ""
    old = {} if before is None else before.resources
    moved = [
        address
        for address, resource in now.resources.items()
        if address not in old
        or (old[address].spec, old[address].fingerprint) != (resource.spec, resource.fingerprint)
    ]
    return tuple(f"{first}{address}{last}" for address in sorted(moved)) or (NONE,)


def with_reruns(scope: Scope, desired: DesiredState, observed: ObservedState) -> DesiredState:
    """The desired state with `rerun` raised where that was asked for.

    Raises:
        UsageError: an address is no experiment of the repository.
    """
    resources = dict(desired.resources)
    experiments = [address for address in resources if address.kind == TRAINED]
    for text in scope.rerun:
        address = _known(text, "--rerun", experiments)
        document = observed.resources.get(address)
        if document is not None:  # what does not exist is trained anyway
            resources[address] = at_rerun(resources[address], rerun_of(document.spec) + 1)
    for text in scope.rerun_stale:
        _known(text, "--rerun-stale", [address for address in resources if address.kind != TRAINED])
    return replace(desired, resources=resources)


def rerun_of(spec: Mapping[str, object]) -> int:
    """Which training of the same thing a stored spec asks for."""
    value = spec.get("rerun")
    return value if isinstance(value, int) else 0


def at_rerun(resource: DesiredResource, least: int) -> DesiredResource:
    """The same resource, with at least this `rerun`."""
    if rerun_of(resource.spec) >= least:
        return resource
    return replace(resource, spec={**resource.spec, "rerun": least})


def _known(text: str, option: str, addresses: Iterable[Address]) -> Address:
    known = {str(address): address for address in addresses}
    if text not in known:
        raise UsageError(f"{option}: there is no {text!r} here; {suggestion(text, known)}".rstrip("; "))
    return known[text]


def _reached(start: set[Address], edges: Mapping[Address, Iterable[Address]]) -> set[Address]:
    seen: set[Address] = set()
    todo = list(start)
    while todo:
        for address in edges.get(todo.pop(), ()):
            if address not in seen:
                seen.add(address)
                todo.append(address)
    return seen
