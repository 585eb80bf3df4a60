"""A platform that is not there, imagined: everything another commit declares is recorded, every run is completed.

For plans where no platform may be asked, such as a fork's pull request. What only a platform knows is left
unknown: prices, version numbers, results that could be reused, what people have stopped.
"""

from __future__ import annotations

from types import MappingProxyType

from arena_gitops.plan.classify import TRAINED, spec_at
from arena_gitops.plan.model import Change, Plan
from arena_gitops.plan.scope import rerun_of
from arena_gitops.spec.job import RunState, RunStatus
from arena_gitops.spec.wire import KnownRun, Owner, ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState, ObservedState

PLATFORM = "offline"


def assumed(base: DesiredState | None) -> ObservedState:
    """What a platform would have after an apply of `base`, as far as that can be known; nothing without one."""
    if base is None:
        return ObservedState(platform=PLATFORM)
    found = {address: _document(resource, base.owner) for address, resource in base.resources.items()}
    runs = {
        (document.fingerprint.run, rerun_of(document.spec)): _known(document.run)
        for document in found.values()
        if document.run is not None
    }
    return ObservedState(platform=PLATFORM, resources=MappingProxyType(found), runs=MappingProxyType(runs))


def unasked(planned: Plan, against: str) -> Plan:
    """A plan that was made with such a platform, which says so and claims nothing of a real one."""
    changes = tuple(_unasked(change) for change in planned.changes)
    return planned.model_copy(update={"mode": "offline", "against": against, "changes": changes})


def _unasked(change: Change) -> Change:
    fields = tuple(field.model_copy(update={"remote": None}) for field in change.fields)
    return change.model_copy(update={"fields": fields}) if fields else change


def _document(resource: DesiredResource, owner: Owner) -> ResourceDocument:
    return ResourceDocument(
        kind=resource.address.kind,
        name=resource.address.name,
        etag=PLATFORM,
        owner=owner,
        spec=dict(resource.spec),
        fingerprint=resource.fingerprint,
        version=0,
        run=_completed(resource) if resource.address.kind == TRAINED else None,
        provenance=resource.provenance,
    )


def _known(run: RunStatus) -> KnownRun:
    """The run of the base as a result that its equals share: a rename trains nothing."""
    return KnownRun(
        run_id=run.run_id,
        fingerprint=run.fingerprint,
        experiment=run.experiment,
        version=0,
        state=run.state.value,
        max_steps=run.max_steps,
    )


def _completed(resource: DesiredResource) -> RunStatus:
    steps = spec_at(resource.spec, "manifest.training.max_steps")
    asked = steps if isinstance(steps, int) else 0
    return RunStatus(
        run_id=PLATFORM,
        experiment=resource.address.name,
        fingerprint=resource.fingerprint.run,
        state=RunState.COMPLETED,
        max_steps=asked,
        step=asked,
    )
