"""Before the first change: the world is as planned, every file is there, every check passes. Or nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from arena_gitops.apply.events import Checked, CheckStarted, Listener, Uploaded
from arena_gitops.apply.parallel import each
from arena_gitops.errors import CheckFailedError, Diagnostic, RepoError, StaleError
from arena_gitops.plan.model import Action, Change, Plan
from arena_gitops.plan.phase import phase_of
from arena_gitops.platforms.base import Platform
from arena_gitops.spec.job import JobInputs
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_gitops.state import Blob, DesiredState, ObservedState

PARALLEL_UPLOADS = 8
CHECKED = frozenset({Action.CREATE, Action.NEW_VERSION})
"""Actions that start training something nobody has trained: its inputs are checked first."""


def require_fresh(plan: Plan, observed: ObservedState, *, strict: bool = False) -> None:
    """Raise StaleError unless every resource that will be touched is as the plan found it; `strict`: every one."""
    if plan.lineage != observed.lineage:
        raise StaleError("the plan was made for another platform database; plan again")
    if strict and plan.serial != observed.serial:
        raise StaleError("something of this stack was written since the plan was made; plan again")
    moved = [
        problem for change in plan.changes if change.action.acts if (problem := _moved(change, observed))
    ]
    if moved:
        raise StaleError("the platform moved since the plan was made; plan again\n  " + "\n  ".join(moved))


def upload(
    platform: Platform,
    desired: DesiredState,
    changes: Iterable[Change],
    listener: Listener,
    interrupted: Callable[[], None] = lambda: None,
) -> None:
    """Send every file that is missing, several at a time; nothing is sent twice."""
    blobs = _needed(desired, changes)
    missing = platform.missing_blobs(sorted(blobs))
    todo = [blobs[digest] for digest in sorted(missing)]
    elsewhere = [
        Diagnostic(f"{blob.path.name} cannot be uploaded: {blob.absent}", "blob-absent")
        for blob in todo
        if blob.absent
    ]
    if elsewhere:
        raise RepoError(elsewhere)
    uploads = each(todo, platform.upload, at_most=PARALLEL_UPLOADS)
    for done, (blob, _) in enumerate(uploads, start=1):
        listener(Uploaded(blob, done, len(todo)))
        interrupted()


def check(
    platform: Platform,
    desired: DesiredState,
    changes: Iterable[Change],
    listener: Listener,
    interrupted: Callable[[], None],
    *,
    keep_going: bool = False,
) -> Mapping[str, str]:
    """Run the checks of every experiment that will be trained; all failures are reported together.

    Returns what failed, address → why: nothing, unless asked to `keep_going`.
    """
    failed: dict[str, list[CheckResult]] = {}
    for change in changes:
        if change.action not in CHECKED or change.at.kind != "experiment":
            continue
        interrupted()
        listener(CheckStarted(change.address))
        resource = desired.resources[change.at]
        request = CheckRequest(
            address=change.address,
            manifest=resource.spec["manifest"],
            inputs=JobInputs.model_validate(resource.spec["inputs"]),
        )
        for result in platform.check(request):
            interrupted()
            listener(Checked(change.address, result))
            if result.status == "fail":
                failed.setdefault(change.address, []).append(result)
    told = {address: sorted({_failure(r, desired) for r in results}) for address, results in failed.items()}
    if failed and not keep_going:
        lines = sorted({line for found in told.values() for line in found})
        count = f"{len(lines)} check{'' if len(lines) == 1 else 's'} failed"
        raise CheckFailedError(f"{count}; nothing was changed\n  " + "\n  ".join(lines))
    return {address: f"check failed: {'; '.join(lines)}" for address, lines in told.items()}


def _moved(change: Change, observed: ObservedState) -> str | None:
    document = observed.resources.get(change.at)
    expected, found = change.preconditions.etag, document.etag if document else None
    if found != expected:
        if expected is None:
            return f"{change.address} exists by now"
        return f"{change.address} is gone" if found is None else f"{change.address} was changed by somebody"
    status = document.deployment if document else None
    chosen = status.choice.digest if status and status.choice else None
    if change.preconditions.choice is not None and chosen != change.preconditions.choice:
        return f"the alias that {change.address} follows points elsewhere by now"
    phase = phase_of(document)
    if change.preconditions.status and phase.value not in change.preconditions.status:
        return f"the run of {change.address} is {phase.value} by now"
    return None


def _needed(desired: DesiredState, changes: Iterable[Change]) -> dict[str, Blob]:
    """Files of everything that will be put, and of what it builds on."""
    wanted = [change.at for change in changes if not change.action.removes]
    seen: set[Address] = set()
    blobs: dict[str, Blob] = {}
    while wanted:
        resource = desired.resources.get(address := wanted.pop())
        if resource is None or address in seen:
            continue
        seen.add(address)
        wanted.extend(resource.depends_on)
        blobs.update({blob.digest: blob for blob in resource.blobs})
    return blobs


def _failure(result: CheckResult, desired: DesiredState) -> str:
    place = _place(result, desired)
    return f"{place}{result.address}: {result.name}: {result.message}"


def _place(result: CheckResult, desired: DesiredState) -> str:
    if result.file is not None:
        return f"{result.file}:{result.line or 1}: "
    try:
        resource = desired.resources.get(Address.parse(result.address))
    except ValueError:  # a check may speak of something that is not a resource of this repository
        return ""
    return f"{resource.span}: " if resource is not None and resource.span is not None else ""
