"""A platform that does not exist yet: the local server before anybody started it.

A plan may look at it (there is nothing there, so all is to be created) and must not bring it to life. Every
other call is refused: somebody would be writing to nowhere. Its one tier will be this machine, which is free.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from arena_gitops.errors import PlatformUnreachableError
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.lease import Lease, LeaseRequest
from arena_gitops.spec.resource import Address
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


class AbsentPlatform:
    """Nothing is here, and looking at it starts nothing."""

    name = "http"

    def close(self) -> None:
        """Nothing is open."""

    def observe(self, owner: Owner) -> ObservedState:
        """An empty state; what the server could train is unknown."""
        return ObservedState(platform=self.name, tiers={tier.id: tier for tier in _this_machine()})

    def missing_blobs(self, digests: Iterable[str]) -> frozenset[str]:
        """All of them."""
        return frozenset(digests)

    def unsound_blobs(self, digests: Iterable[str]) -> Mapping[str, Unsound]:
        """None: nothing is stored."""
        return {}

    def upload(self, blob: Blob) -> None:
        """Refuse."""
        _refuse()

    def read_blob(self, digest: str, *, limit: int) -> bytes | None:
        """Nothing is here."""
        return None

    def check(self, request: CheckRequest) -> Iterator[CheckResult]:
        """Refuse."""
        _refuse()

    def take_lease(self, request: LeaseRequest) -> Lease | None:
        """Refuse."""
        _refuse()

    def renew_lease(self, lease: Lease) -> Lease:
        """Refuse."""
        _refuse()

    def release_lease(self, lease_id: str) -> None:
        """Refuse."""
        _refuse()

    def living_lease(self, owner: Owner) -> Lease | None:
        """Nobody holds one."""
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
        """Refuse."""
        _refuse()

    def retire(
        self, address: Address, owner: Owner, *, etag: str, fence: int | None = None, purge: bool = False
    ) -> None:
        """Refuse."""
        _refuse()

    def run_status(self, run_id: str) -> RunStatus:
        """Refuse."""
        _refuse()

    def run_events(self, run_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """Refuse."""
        _refuse()

    def stop_run(self, run_id: str) -> RunStatus:
        """Refuse."""
        _refuse()


def _this_machine() -> tuple[Tier, ...]:
    """The tier of a server that has no file of tiers; nothing where a GPU is here, which only that server looks at."""
    if shutil.which("nvidia-smi") is not None:
        return ()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        Tier(
            id="local",
            num_cpus=os.cpu_count() or 1,
            ram_gb=round(memory / 2**30, 1),
            credits_per_node_hour=0.0,
        ),
    )


def _refuse() -> NoReturn:
    raise PlatformUnreachableError(
        "there is no local server yet; `arena apply` or `arena server start` starts it"
    )
