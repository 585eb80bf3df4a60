"""The leases of the in-memory platform. Called under the platform's lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from arena_gitops.errors import LeaseLostError, LockedError
from arena_gitops.spec.lease import Lease, LeaseRequest
from arena_gitops.spec.wire import Owner


@dataclass(slots=True)
class Leases:
    """The newest lease of each stack; one that was released leaves its fence behind."""

    now: Callable[[], float]
    _held: dict[Owner, Lease] = field(default_factory=dict)
    _fences: dict[Owner, int] = field(default_factory=dict)

    def take(self, request: LeaseRequest) -> Lease:
        """A new lease, with a higher fence than any before."""
        if (lease := self.living(request.owner)) is not None:
            raise self._locked(lease)
        fence = self._fences.get(request.owner, 0) + 1
        self._fences[request.owner] = fence
        now = self.now()
        lease = Lease(
            **dict(request),
            id=f"l_{request.owner.namespace}_{request.owner.stack}_{fence}",
            fence=fence,
            created=now,
            expires=now + request.ttl_s,
        )
        self._held[request.owner] = lease
        return lease

    def renew(self, lease: Lease) -> Lease:
        """The same for another TTL."""
        held = self._held.get(lease.owner)
        if held is None or (held.id, held.fence) != (lease.id, lease.fence):
            raise _lost()
        renewed = held.model_copy(update={"expires": self.now() + held.ttl_s})
        self._held[lease.owner] = renewed
        return renewed

    def release(self, lease_id: str) -> None:
        """End it, whoever holds it."""
        self._held = {owner: lease for owner, lease in self._held.items() if lease.id != lease_id}

    def living(self, owner: Owner) -> Lease | None:
        """Who may change a stack now."""
        held = self._held.get(owner)
        return held if held is not None and held.expires > self.now() else None

    def guard(self, owner: Owner, fence: int | None) -> None:
        """Refuse a write beside somebody's lease, or under one that is over."""
        held = self._held.get(owner)
        if fence is not None and (held is None or held.fence != fence):
            raise _lost()
        if fence is None and (lease := self.living(owner)) is not None:
            raise self._locked(lease)

    def _locked(self, lease: Lease) -> LockedError:
        owner = lease.owner
        message = f"stack {owner.stack} in namespace {owner.namespace} is locked: {lease.told(self.now())}"
        details = lease.model_dump(exclude={"owner", "fence"})
        return LockedError(message, {k: str(v) for k, v in details.items() if v is not None})


def _lost() -> LeaseLostError:
    return LeaseLostError("the lease of this apply is over: it was released, or somebody else has taken it")
