"""The serving hosts of other machines: who was heard of, what each of them should run, what answers there.

Observed and not stored: every host says all of it again within seconds, also to a server that was just started. A
place stays with the host that has it for as long as that is heard of.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arena_gitops.spec.worker import HostedModel, HostReport
from arena_runner.server.dialled import Dialled

if TYPE_CHECKING:
    from arena_runner.server.places import Place

LOST_S = 15.0
"""A host that was silent for longer is asked nothing."""
POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class Host:
    """What was heard last."""

    report: HostReport
    token_id: str
    seen: float


@dataclass(slots=True)
class Hosts:
    """Of one server; times are the server's own."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _hosts: dict[str, Host] = field(default_factory=dict)
    _wanted: dict[str, Place] = field(default_factory=dict)
    _holders: dict[str, str] = field(default_factory=dict)
    """place → host"""
    dialled: Dialled = field(default_factory=Dialled)
    """where those are asked that dial out"""

    def heard(self, report: HostReport, token_id: str, now: float) -> bool:
        """Take a report in; whether it says anything new."""
        with self._lock:
            before = self._hosts.get(report.host_id)
            if report.leaving:
                self._hosts.pop(report.host_id, None)
                return before is not None
            self._hosts[report.host_id] = Host(report, token_id, now)
            return before is None or before.report != report or now - before.seen > LOST_S

    def of(self, host_id: str) -> Host | None:
        """A host by its name, heard of lately or not."""
        with self._lock:
            return self._hosts.get(host_id)

    def present(self, tier: str, now: float) -> bool:
        """Whether a host of the tier was heard of lately."""
        with self._lock:
            return bool(self._living(tier, now))

    def want(self, places: Iterable[Place], now: float) -> None:
        """What hosts should run from now on; each place goes to the host of its tier that has the fewest."""
        with self._lock:
            self._wanted = {place.key: place for place in places if place.tier is not None}
            living = {host.report.host_id for host in self._hosts.values() if now - host.seen <= LOST_S}
            kept = {k: h for k, h in self._holders.items() if k in self._wanted and h in living}
            self._holders = kept
            for key, place in self._wanted.items():
                free = self._living(place.tier or "", now)
                if key not in kept and free:
                    kept[key] = min(free, key=lambda name: (list(kept.values()).count(name), name))

    def orders(self, host_id: str) -> tuple[Place, ...]:
        """What one host should run."""
        with self._lock:
            return tuple(self._wanted[key] for key, holder in self._holders.items() if holder == host_id)

    def opened_by(self, token_id: str) -> tuple[Place, ...]:
        """What the hosts of a token should run: it opens what they need, and nothing else."""
        with self._lock:
            names = {name for name, host in self._hosts.items() if host.token_id == token_id}
            return tuple(self._wanted[key] for key, holder in self._holders.items() if holder in names)

    def find(self, key: str) -> tuple[str, HostedModel] | None:
        """Where a place is, and how it is there; nowhere as long as its host has yet to open a connection."""
        with self._lock:
            host = self._hosts.get(self._holders.get(key, ""))
            model = host.report.models.get(key) if host else None
            url = (host.report.url or self.dialled.url(host.report.host_id)) if host else None
            return (url, model) if url and model else None

    def _living(self, tier: str, now: float) -> Mapping[str, Host]:
        return {
            name: host
            for name, host in self._hosts.items()
            if host.report.tier == tier and now - host.seen <= LOST_S
        }
