"""Every reference leads to a resource of the repository, and no experiment starts from itself."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from arena_gitops.errors import Diagnostic
from arena_gitops.repo.catalog import Catalog, Entry
from arena_gitops.repo.git import ROOT_FILE
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.problems import near
from arena_gitops.spec.references import Reference
from arena_gitops.spec.resource import Address


def check(catalog: Catalog) -> set[Address]:
    """Report references that lead nowhere; returns the resources that have one."""
    bad = {
        entry.address
        for entry in catalog.entries.values()
        for reference in entry.resource.references()
        if not _leads_somewhere(catalog, entry, reference)
    }
    _check_project(catalog)
    return bad


def in_order(catalog: Catalog) -> list[Entry]:
    """Experiments, each after the one it starts from; those on a cycle are reported and left out."""
    bases: dict[Address, set[Address]] = {}
    for entry in catalog.of("experiment"):
        resource = entry.resource
        base = resource.base if isinstance(resource, Experiment) else None
        bases[entry.address] = {Address("experiment", base.experiment.name)} if base else set()
    while True:
        try:
            order = list(TopologicalSorter(bases).static_order())
        except CycleError as error:
            _report_cycle(catalog, bases, error.args[1])
            continue
        return [catalog.entries[address] for address in order if address in bases]


def _report_cycle(catalog: Catalog, bases: dict[Address, set[Address]], found: list[Address]) -> None:
    cycle = _from_the_first(found)
    shown = " → ".join(str(address) for address in cycle)
    span = catalog.entries[cycle[0]].document.span(("base", "experiment"))
    hint = "One of them must start from the base model."
    message = f"these experiments start from each other: {shown}"
    catalog.problems.append(Diagnostic(message, "base-cycle", span, hint))
    for address in cycle:
        bases.pop(address, None)
        catalog.broken.add(address)


def _from_the_first(found: list[Address]) -> list[Address]:
    """A cycle, written in the direction of `base:` and beginning with its first name, first and last equal."""
    ring = list(reversed(found[:-1]))
    start = ring.index(min(ring))
    return [*ring[start:], *ring[: start + 1]]


def _leads_somewhere(catalog: Catalog, entry: Entry, reference: Reference) -> bool:
    address = Address(reference.kind, reference.ref.name)
    span = entry.document.span(reference.path)
    if address not in catalog.entries:
        if address not in catalog.broken:
            hint = _near(catalog, address)
            catalog.problems.append(Diagnostic(f"there is no {address}", "unknown-reference", span, hint))
        return False
    if reference.ref.version is not None:
        message = f"{reference.ref}: only the platform knows which content is v{reference.ref.version}"
        hint = f"Pin the content: {reference.ref.name}@sha256:…"
        catalog.problems.append(Diagnostic(message, "pinned-version", span, hint))
        return False
    if reference.ref.digest is not None and reference.kind in {"project", "experiment"}:
        message = f"{reference.kind} references cannot be pinned"
        catalog.problems.append(Diagnostic(message, "pinned-version", span, f"Write {reference.ref.name}."))
        return False
    return True


def _check_project(catalog: Catalog) -> None:
    name = catalog.stack.project if catalog.stack else None
    address = Address("project", name or "")
    head = catalog.head
    if name is None or head is None or address in catalog.entries or address in catalog.broken:
        return
    hint = _near(catalog, address) or f"Declare it: kind: Project, name: {name}."
    message = f"{ROOT_FILE} files its experiments in {address}, which is not declared"
    catalog.report(head, ("project",), message, "unknown-reference", hint)


def _near(catalog: Catalog, address: Address) -> str:
    known = catalog.names(address.kind)
    if match := near(address.name, known):
        return f"Did you mean {match!r}?"
    elsewhere = [other.kind for other in catalog.entries if other.name == address.name]
    if elsewhere:
        return f"There is {elsewhere[0]}/{address.name}."
    return f"There are: {', '.join(known[:20])}." if known else ""
