"""The port over hosted Arena's protocol: look, create what is not there, and never create it twice.

Nothing here is repeated after a lost answer. The adapter looks instead: a name says whether what was asked for is
there, also when the answer was 503 and it had taken effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock

from arena_gitops.errors import BlockedError, PlatformError, StaleError
from arena_gitops.platforms.arena_api import ArenaApi
from arena_gitops.platforms.arena_cloud import state
from arena_gitops.platforms.arena_cloud.making import Maker, rejected
from arena_gitops.platforms.arena_cloud.names import VersionName
from arena_gitops.platforms.arena_cloud.seen import Seen, Version, deployments_of, tier, versions_of
from arena_gitops.platforms.arena_cloud.staging import Staging
from arena_gitops.platforms.door import BehindADoor, Door, Token
from arena_gitops.platforms.structure import repeated, structural_checks, validated
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import RunState, RunStatus
from arena_gitops.spec.lease import Lease, LeaseRequest
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import (
    CheckRequest,
    CheckResult,
    Owner,
    PutResource,
    ResourceDocument,
    StoredEvent,
)
from arena_gitops.state import Blob, DesiredResource, ObservedState, Unsound

HOSTED = "https://arena.agilerl.com"
"""Where hosted Arena is, unless a target says otherwise."""


class ArenaCloudPlatform(BehindADoor):
    """Hosted Arena, or a server that speaks its protocol."""

    name = state.NAME

    def __init__(
        self,
        url: str = HOSTED,
        token: Token = None,
        *,
        book: Mapping[Address, DesiredResource] | None = None,
        door: Door | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`book` has the declarations that names are compared with; without it, only names are told."""
        self._door = door or Door(url, token)
        self._api = ArenaApi(self._door)
        self._given = book
        self._books: dict[Owner, dict[Address, DesiredResource]] = {}
        self._put: set[Owner] = set()
        self._staging = Staging()
        self._maker = Maker(self._api, self._staging, pause)
        self._answers: dict[tuple[Owner, Address, str], tuple[str, ResourceDocument]] = {}
        self._lock = Lock()
        """names count versions, so they are given one at a time"""

    def observe(self, owner: Owner) -> ObservedState:
        """What can be told from names, in a handful of requests."""
        return self._state(owner, self._look(owner, exports=True))

    def missing_blobs(self, digests: Iterable[str]) -> frozenset[str]:
        """What has not been given to this adapter: files travel with the call that needs them."""
        return self._staging.missing(digests)

    def upload(self, blob: Blob) -> None:
        """Keep it at hand, once its bytes are those of its name."""
        self._staging.keep(blob)

    def read_blob(self, digest: str, *, limit: int) -> bytes | None:
        """Nothing can be read back."""
        return None

    def unsound_blobs(self, digests: Iterable[str]) -> Mapping[str, Unsound]:
        """Nobody can tell: the protocol gives no files back."""
        return {}

    def check(self, request: CheckRequest) -> Iterator[CheckResult]:
        """Columns, syntax and names, from the files themselves; the platform checks the rest at submission."""
        yield from structural_checks(request, self._staging.contents(digests_of_inputs(request)))

    def take_lease(self, request: LeaseRequest) -> Lease | None:
        """There is none."""
        return None

    def renew_lease(self, lease: Lease) -> Lease:
        """Nobody has one to renew."""
        return lease

    def release_lease(self, lease_id: str) -> None:
        """Nobody has one."""

    def living_lease(self, owner: Owner) -> Lease | None:
        """Nobody has one."""
        return None

    def put(
        self,
        address: Address,
        body: PutResource,
        *,
        etag: str | None,
        idempotency_key: str,
        fence: int | None = None,
    ) -> ResourceDocument:
        """Create what its name says is not there yet."""
        validated(address, body)
        content = sha256_json(body.model_dump(mode="json"))
        with self._lock:
            answered = self._answers.get((body.owner, address, idempotency_key))
            if answered is not None:
                return repeated(address, answered, content)
            seen = self._look(body.owner)
            before = self._state(body.owner, seen).resources.get(address)
            _require(address, before, etag)
            self._make(address, body, seen, before)
            self._book(body.owner)[address] = _declared(address, body)
            self._put.add(body.owner)
            document = self._document(body.owner, address)
            self._answers[body.owner, address, idempotency_key] = content, document
            return document

    def retire(
        self, address: Address, owner: Owner, *, etag: str, fence: int | None = None, purge: bool = False
    ) -> None:
        """Forget it. What its run is doing ends; a deployment cannot be ended, and nothing deleted."""
        if purge:
            raise BlockedError(f"{address}: nothing can be deleted on this platform")
        with self._lock:
            before = self._state(owner, self._look(owner)).resources.get(address)
            if before is None:
                return
            _require(address, before, etag)
            if address.kind == "deployment":
                raise BlockedError(
                    f"{address} goes on serving: this platform has no call to end a deployment"
                )
            self._book(owner).pop(address, None)
            if (
                before.run is not None
                and not before.run.state.ended
                and not self._used(owner, before.run.run_id)
            ):
                self._api.stop(before.run.run_id)
            for key in [key for key in self._answers if key[:2] == (owner, address)]:
                del self._answers[key]

    def run_status(self, run_id: str) -> RunStatus:
        """Of a run, which has the name of its version."""
        version = self._version(run_id)
        return version.run(version.name.base, run_id, 0)

    def run_events(self, run_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """None: the protocol has only metrics."""
        self._version(run_id)
        return iter(())

    def stop_run(self, run_id: str) -> RunStatus:
        """Ask it to stop; one that has ended stays as it is."""
        if not self._version(run_id).state.ended:
            self._api.stop(run_id)
        return self.run_status(run_id)

    def _make(self, address: Address, body: PutResource, seen: Seen, before: ResourceDocument | None) -> None:
        match address.kind:
            case "project":
                self._maker.project(address.name, body.spec)
            case "dataset":
                self._maker.dataset(address.name, body.spec)
            case "experiment":
                self._maker.experiment(address.name, body, seen, before)
            case "deployment":
                at = self._at(body.owner, seen).get(Address("experiment", str(body.spec["experiment"])))
                if at is None:
                    raise rejected(409, "no-experiment", f"{address}: its experiment is not there yet")
                self._maker.deployment(at, str(body.spec.get("checkpoint") or "best"))
            case "reward":
                pass  # travels with each submission
            case _:
                raise rejected(422, "not-sent", f"{address}: {address.kind}s are not sent to this platform")

    def _book(self, owner: Owner) -> dict[Address, DesiredResource]:
        """What is declared: as given, and as put since."""
        return self._books.setdefault(owner, dict(self._given or {}))

    def _at(self, owner: Owner, seen: Seen) -> dict[Address, Version]:
        return state.matched(self._book(owner), seen)

    def _look(self, owner: Owner, *, exports: bool = False) -> Seen:
        book = self._book(owner)
        projects = frozenset(project.name for project in self._api.projects())
        rows = [row for project in _listed(projects, book) for row in self._api.experiments(project)]
        seen = Seen(
            projects=projects,
            datasets=frozenset(dataset.name for dataset in self._api.datasets()),
            versions=versions_of(owner, rows),
            deployments=deployments_of(owner, self._api.deployments()),
            tiers={key: tier(key, row) for key, row in self._api.tiers().items()},
            balance=self._api.balance() if exports else None,
        )
        if exports:
            for name in self._followed(owner, seen):
                seen = seen.with_checkpoints(name, self._api.checkpoints(str(name)))
        self._staging.known(seen.datasets, book)
        return seen

    def _followed(self, owner: Owner, seen: Seen) -> list[VersionName]:
        """Ended versions whose exports decide something: a deployment, or whether there is one to go on from."""
        book = self._book(owner)
        deployed = {str(r.spec["experiment"]) for a, r in book.items() if a.kind == "deployment"}
        return [
            version.name
            for address, version in self._at(owner, seen).items()
            if version.state is RunState.FAILED or (version.state.ended and address.name in deployed)
        ]

    def _state(self, owner: Owner, seen: Seen) -> ObservedState:
        told = self._given is None and owner not in self._put
        return state.observed(owner, None if told else self._book(owner), seen, lineage=self._door.url)

    def _document(self, owner: Owner, address: Address) -> ResourceDocument:
        found = self._state(owner, self._look(owner)).resources.get(address)
        if found is None:
            raise PlatformError(
                f"{address} was made, and the platform does not list it; plan again in a while"
            )
        return found

    def _used(self, owner: Owner, run_id: str) -> bool:
        """Whether another experiment is the same version."""
        return any(str(version.name) == run_id for version in self._at(owner, self._look(owner)).values())

    def _version(self, run_id: str) -> Version:
        name = VersionName.parse(run_id)
        projects = frozenset(project.name for project in self._api.projects()) if name else frozenset()
        lists = (self._api.experiments(project) for project in (*sorted(projects), None)) if name else ()
        row = next((row for rows in lists for row in rows if row.name == run_id), None)
        if name is None or row is None:
            raise rejected(404, "not-found", f"there is no run {run_id}")
        return Version(name, row, self._api.checkpoints(run_id))


def _listed(projects: frozenset[str], book: Mapping[Address, DesiredResource]) -> list[str | None]:
    """Whose experiments to ask for: those of the declared projects, or without declarations all."""
    experiments = [r.spec.get("project") for a, r in book.items() if a.kind == "experiment"]
    declared = {a.name for a in book if a.kind == "project"} | {str(p) for p in experiments if p}
    if not book:
        return [*sorted(projects)] or [None]
    return [*sorted(declared & projects), *([None] if None in experiments else [])]


def digests_of_inputs(request: CheckRequest) -> tuple[str, ...]:
    """The files that the checks of an experiment look at."""
    inputs = request.inputs
    data = [inputs.dataset.digest] if inputs.dataset and inputs.dataset.digest else []
    return (*data, *(inputs.reward.files.values() if inputs.reward else ()))


def _declared(address: Address, body: PutResource) -> DesiredResource:
    spec = {**body.spec, **({"rerun": body.rerun} if body.rerun else {})}
    return DesiredResource(
        address=address, spec=spec, fingerprint=body.fingerprint, provenance=body.provenance
    )


def _require(address: Address, before: ResourceDocument | None, etag: str | None) -> None:
    found = None if before is None else before.etag
    if found != etag:
        state_now = "is not there" if found is None else f"is at {found}"
        raise StaleError(f"{address} {state_now}, expected was {etag or 'nothing'}; plan again")
