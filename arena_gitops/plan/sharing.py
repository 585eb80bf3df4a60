"""Equal work is one run, whoever asks for it: who else is on a run, and what that means when somebody stops it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from arena_gitops.plan.classify import TRAINED
from arena_gitops.plan.model import Action, Change, PlanDiagnostic
from arena_gitops.plan.scope import rerun_of
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredState, ObservedState

TAKES_UP = frozenset(
    {Action.CREATE, Action.NEW_VERSION, Action.REUSE, Action.RESUME, Action.MOVE, Action.IMPORT}
)
NAMED = 5


def on_the_run_of(document: ResourceDocument, observed: ObservedState) -> tuple[Address, ...]:
    """Other experiments of the stack that are on its run."""
    return tuple(
        other
        for other, theirs in observed.resources.items()
        if document.run is not None
        and theirs.run is not None
        and theirs.run.run_id == document.run.run_id
        and (theirs.kind, theirs.name) != (document.kind, document.name)
    )


def staying(
    document: ResourceDocument, desired: DesiredState, observed: ObservedState
) -> tuple[Address, ...]:
    """Of those, the ones that go on being so: the run is not stopped for this one."""
    return tuple(
        other
        for other in on_the_run_of(document, observed)
        if (wanted := desired.resources.get(other)) is not None
        and wanted.fingerprint.run == observed.resources[other].fingerprint.run
        and rerun_of(wanted.spec) == rerun_of(observed.resources[other].spec)
    )


def note(others: Iterable[Address]) -> str:
    """What a change says of a run that others keep."""
    return f"the run goes on: {_listed(map(str, others))} shares it"


def remarks(changes: Iterable[Change], desired: DesiredState) -> Iterator[PlanDiagnostic]:
    """A warning for each run that several experiments of this plan are to share."""
    acting = {change.at for change in changes if change.action in TAKES_UP and change.at.kind == TRAINED}
    if not acting:
        return
    alike: dict[tuple[str, int], list[Address]] = defaultdict(list)
    for address, resource in desired.resources.items():
        if address.kind == TRAINED:
            alike[resource.fingerprint.run, rerun_of(resource.spec)].append(address)
    for addresses in alike.values():
        if len(addresses) > 1 and acting & {*addresses}:
            named = _listed(str(address) for address in sorted(addresses))
            yield PlanDiagnostic(
                severity="warning",
                code="shared-run",
                message=f"{named} are the same work and share one run: whoever stops it stops it for all of them",
                hint="another mutation.rand_seed, or rerun, gives one a run of its own",
            )


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    if len(found) > NAMED:
        return f"{', '.join(found[:NAMED])} and {len(found) - NAMED} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]
