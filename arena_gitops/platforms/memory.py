"""A whole platform in memory: the port's contract in its plainest form, for tests, examples and dry runs.

It keeps the same promises as the server (etags, idempotency, ownership, versions, reuse, standing promotions)
and trains nothing: runs follow a `RunScript`. It is production code: the contract suite runs against it and
against the real server, so that a test over it means something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from arena_gitops import __version__
from arena_gitops.errors import BlockedError, PlatformRejectedError, Rejection, StaleError
from arena_gitops.platforms.leases import Leases
from arena_gitops.platforms.ledger import Ledger, Record
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.platforms.structure import digests_of, repeated, structural_checks, validated
from arena_gitops.spec.algorithms import ALGORITHMS
from arena_gitops.spec.digest import sha256_bytes, sha256_json
from arena_gitops.spec.inputs import EnvironmentProfile
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.lease import Lease, LeaseRequest
from arena_gitops.spec.memory import ModelFacts
from arena_gitops.spec.resource import Address
from arena_gitops.spec.stack import RESERVED
from arena_gitops.spec.wire import (
    CheckRequest,
    CheckResult,
    Owner,
    PutResource,
    ResourceDocument,
    StoredEvent,
    Tier,
)
from arena_gitops.state import Blob, ObservedState, Unsound


class MemoryPlatform:
    """Everything a platform keeps, in dictionaries behind one lock."""

    name = "memory"

    def __init__(
        self,
        *,
        runs: RunScript | None = None,
        tiers: Iterable[Tier] = (),
        algorithms: Iterable[str] = ALGORITHMS,
        max_steps: int | None = None,
        trainer: str = __version__,
        revisions: Mapping[str, str] = MappingProxyType({}),
        spent_this_month: float | None = None,
        balance: float | None = None,
        models: Iterable[ModelFacts] = (),
        secrets: Mapping[str, int] | None = None,
        profiles: Iterable[EnvironmentProfile] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._lock = threading.RLock()
        self._ledger = Ledger(
            runs or RunScript.completes(), max_steps=max_steps, now=now, trainer=trainer, revisions=revisions
        )
        self._leases = Leases(now)
        self._blobs: dict[str, bytes] = {}
        self._answers: dict[tuple[str, Address, str], tuple[str, ResourceDocument]] = {}
        self._tiers = {tier.id: tier for tier in tiers}
        self._algorithms = tuple(sorted(algorithms))
        self._max_steps = max_steps
        self._trainer = trainer
        self._spent_this_month = spent_this_month
        self._balance = balance
        self._secrets = secrets
        self._models = {facts.id: facts for facts in models}
        self._profiles = {one.content: one for one in profiles}

    def observe(self, owner: Owner) -> ObservedState:
        """Everything `owner` has here, in one answer."""
        with self._lock:
            mine = self._ledger.documents(owner)
            return ObservedState(
                platform=self.name,
                lineage="memory",
                etag=sha256_json([document.model_dump(mode="json") for document in mine.values()]),
                resources=MappingProxyType(mine),
                foreign=MappingProxyType(self._ledger.foreign(owner)),
                runs=MappingProxyType(self._ledger.reusable()),
                tiers=MappingProxyType(dict(self._tiers)),
                algorithms=self._algorithms,
                trainer=self._trainer,
                max_steps=self._max_steps,
                spent_this_month=self._spent_this_month,
                balance=self._balance,
                models=MappingProxyType(dict(self._models)),
                secrets=None if self._secrets is None else MappingProxyType(dict(self._secrets)),
                profiles=MappingProxyType(dict(self._profiles)),
            )

    def missing_blobs(self, digests: Iterable[str]) -> frozenset[str]:
        """Which of these digests must still be uploaded."""
        with self._lock:
            return frozenset(digest for digest in digests if digest not in self._blobs)

    def upload(self, blob: Blob) -> None:
        """Store a file under its digest; refuses bytes that do not hash to the name."""
        data = blob.path.read_bytes() if blob.data is None else blob.data
        if sha256_bytes(data) != blob.digest:
            raise _rejected(
                422, "digest_mismatch", f"the bytes of {blob.path.name} do not hash to {blob.digest}"
            )
        with self._lock:
            self._blobs[blob.digest] = data

    def read_blob(self, digest: str, *, limit: int) -> bytes | None:
        """A stored file, unless it is too long."""
        with self._lock:
            data = self._blobs.get(digest)
        return data if data is not None and len(data) <= limit else None

    def unsound_blobs(self, digests: Iterable[str]) -> Mapping[str, Unsound]:
        """Hash what is here once more."""
        with self._lock:
            here = {digest: self._blobs.get(digest) for digest in digests}
        found: dict[str, Unsound] = {digest: "absent" for digest, data in here.items() if data is None}
        damaged = (
            digest for digest, data in here.items() if data is not None and sha256_bytes(data) != digest
        )
        return found | dict.fromkeys(damaged, "damaged")

    def check(self, request: CheckRequest) -> Iterator[CheckResult]:
        """Look at columns, files and functions; no code of the repository is run here."""
        with self._lock:
            blobs: Mapping[str, bytes] = dict(self._blobs)
        yield from structural_checks(request, blobs)

    def take_lease(self, request: LeaseRequest) -> Lease | None:
        """The right to change a stack, alone."""
        with self._lock:
            return self._leases.take(request)

    def renew_lease(self, lease: Lease) -> Lease:
        """The same for another TTL."""
        with self._lock:
            return self._leases.renew(lease)

    def release_lease(self, lease_id: str) -> None:
        """End a lease, whoever holds it."""
        with self._lock:
            self._leases.release(lease_id)

    def living_lease(self, owner: Owner) -> Lease | None:
        """Who may change a stack now."""
        with self._lock:
            return self._leases.living(owner)

    def put(
        self,
        address: Address,
        body: PutResource,
        *,
        etag: str | None,
        idempotency_key: str,
        fence: int | None = None,
    ) -> ResourceDocument:
        """Make the resource so; see the port for the promises."""
        validated(address, body)
        content = sha256_json(body.model_dump(mode="json"))
        with self._lock:
            self._leases.guard(body.owner, fence)
            answered = self._answers.get((body.owner.namespace, address, idempotency_key))
            if answered is not None:
                return repeated(address, answered, content)
            self._guard(address, body, etag)
            document = self._ledger.adopt(address, body) if body.adopt else self._ledger.put(address, body)
            self._answers[body.owner.namespace, address, idempotency_key] = content, document
            return document

    def retire(
        self, address: Address, owner: Owner, *, etag: str, fence: int | None = None, purge: bool = False
    ) -> None:
        """Forget the resource, keep its history unless it is purged; its run is stopped, a deployment undeployed."""
        with self._lock:
            self._leases.guard(owner, fence)
            record = self._ledger.find(owner.namespace, address)
            if record is None:
                return
            _require_owner(address, record, owner)
            _require_etag(address, record, etag)
            self._ledger.retire(record)
            if purge:
                for digest in self._ledger.purge(owner.namespace, address):
                    self._blobs.pop(digest, None)
            for key in [k for k in self._answers if k[:2] == (owner.namespace, address)]:
                del self._answers[key]  # an old answer must not hide that the resource is gone

    def run_status(self, run_id: str) -> RunStatus:
        """The newest status of a run."""
        with self._lock:
            return self._run(run_id)

    def run_events(self, run_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """Events with index > `after`, oldest first."""
        with self._lock:
            self._run(run_id)
            events = self._ledger.events(run_id)
        yield from (event for event in events if event.index > after)

    def stop_run(self, run_id: str) -> RunStatus:
        """Stop a run now; one that has ended stays as it is."""
        with self._lock:
            self._run(run_id)
            return self._ledger.stop(run_id, cause="user")

    def play(self, run_id: str, script: RunScript) -> RunStatus:
        """Let the world move on: this run now follows another script. Not part of the port."""
        with self._lock:
            self._run(run_id)
            return self._ledger.play(run_id, script)

    def _guard(self, address: Address, body: PutResource, etag: str | None) -> None:
        record = self._ledger.find(body.owner.namespace, address)
        if record is not None and not (body.adopt and record.owner.stack == RESERVED):
            _require_owner(address, record, body.owner)
        _require_etag(address, record, etag)
        if missing := self.missing_blobs(digests_of(address, body)):
            raise _rejected(
                422, "missing_blob", f"{address} names files that were not uploaded: {min(missing)}"
            )

    def _run(self, run_id: str) -> RunStatus:
        try:
            return self._ledger.runs[run_id].status
        except KeyError as error:
            raise _rejected(404, "not_found", f"there is no run {run_id}") from error


def _require_owner(address: Address, record: Record, owner: Owner) -> None:
    if record.owner != owner:
        raise BlockedError(
            f"{address} belongs to stack {record.owner.stack}; {owner.stack} may not change it"
        )


def _require_etag(address: Address, record: Record | None, etag: str | None) -> None:
    found = None if record is None else record.etag
    if found != etag:
        state = "does not exist" if found is None else f"is at {found}"
        wanted = "was expected not to exist" if etag is None else f"was expected at {etag}"
        raise StaleError(f"{address} {state}, {wanted}; plan again")


def _rejected(status: int, code: str, message: str) -> PlatformRejectedError:
    return PlatformRejectedError(Rejection(status=status, code=code, message=message))
