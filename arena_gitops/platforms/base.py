"""The contract every platform keeps; `tests/contracts/test_platform.py` states it as tests.

An adapter translates foreign exceptions into `arena_gitops.errors` and never retries a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.lease import Lease, LeaseRequest
from arena_gitops.spec.resource import MAIN, Address
from arena_gitops.spec.stack import RESERVED
from arena_gitops.spec.wire import (
    CheckRequest,
    CheckResult,
    Owner,
    PutResource,
    ResourceDocument,
    StoredEvent,
)
from arena_gitops.state import Blob, DesiredState, ObservedState, Unsound


class Platform(Protocol):
    """Where desired state is recorded and work is run."""

    name: str
    """`memory`, `http` or `arena_cloud`: the adapter, as `arena.yaml` names it"""

    def observe(self, owner: Owner) -> ObservedState:
        """Everything `owner` has here, in one answer. Must not change anything."""
        ...

    def missing_blobs(self, digests: Iterable[str]) -> frozenset[str]:
        """Which of these digests must still be uploaded."""
        ...

    def upload(self, blob: Blob) -> None:
        """Store a blob. Must verify the digest; storing it twice is the same as once."""
        ...

    def read_blob(self, digest: str, *, limit: int) -> bytes | None:
        """A stored file, for a plan to compare with; must change nothing.

        None where it is not here, is longer than `limit` bytes, or may not be read by this caller.
        """
        ...

    def unsound_blobs(self, digests: Iterable[str]) -> Mapping[str, Unsound]:
        """Which of these files, that something stored is made of, are gone or are other bytes by now.

        Reads every byte of them and changes nothing. Empty on a platform that gives no files back.
        """
        ...

    def check(self, request: CheckRequest) -> Iterator[CheckResult]:
        """Run the dataset and reward checks of one experiment in the platform's sandbox.

        Must not record anything but blobs. A failing check is a result, not an exception.
        """
        ...

    def take_lease(self, request: LeaseRequest) -> Lease | None:
        """The right to change a stack, alone; None where a platform has no such thing.

        Raises LockedError, with who holds it since when, while somebody else's lives.
        """
        ...

    def renew_lease(self, lease: Lease) -> Lease:
        """The same for another TTL. Raises LeaseLostError when it was released or somebody has taken it."""
        ...

    def release_lease(self, lease_id: str) -> None:
        """End a lease, whoever holds it. What has ended already stays so, without error."""
        ...

    def living_lease(self, owner: Owner) -> Lease | None:
        """Who may change a stack now; None: anybody."""
        ...

    def put(
        self,
        address: Address,
        body: PutResource,
        *,
        etag: str | None,
        idempotency_key: str,
        fence: int | None = None,
    ) -> ResourceDocument:
        """Make the resource so.

        `etag` None means it must not exist yet; otherwise it must still be at that etag, else StaleError.
        The same key with the same body must give the same answer and start nothing twice.
        `fence` is that of the lease under which it is made: LeaseLostError once that lease is over, and
        LockedError for a write without one while somebody holds the lease.
        Raises BlockedError when another owner has the address.
        """
        ...

    def retire(
        self, address: Address, owner: Owner, *, etag: str, fence: int | None = None, purge: bool = False
    ) -> None:
        """Forget the resource, keep its data. A queued or running run is stopped; a deployment undeployed.

        `purge`: delete its data too, for good: its versions, runs that no other experiment shares, files that nothing
        else uses. A platform that cannot do that raises BlockedError and changes nothing.
        Raises StaleError when the etag has moved; retiring what is gone already is no error.
        """
        ...

    def run_status(self, run_id: str) -> RunStatus:
        """The newest status of a run; PlatformRejectedError 404 for an unknown one."""
        ...

    def run_events(self, run_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """Events with index > `after`, oldest first; ends when there are no more for now."""
        ...

    def stop_run(self, run_id: str) -> RunStatus:
        """Ask a run to stop at its next iteration end; a run that has ended stays as it is."""
        ...


def look(platform: Platform, desired: DesiredState) -> ObservedState:
    """What a stack has here, and what nobody manages where some of it is to be imported."""
    observed = platform.observe(desired.owner)
    here = desired.owner.namespace == MAIN and observed.limits.adopts
    if not here or desired.imports.keys() <= observed.resources.keys():
        return observed
    return replace(observed, unmanaged=unmanaged(platform))


def unmanaged(platform: Platform) -> Mapping[Address, ResourceDocument]:
    """What commands have made by name; no repository manages it. Nothing where a platform cannot tell."""
    found = platform.observe(Owner(stack=RESERVED, namespace=MAIN))
    return found.resources if found.limits.adopts else {}
