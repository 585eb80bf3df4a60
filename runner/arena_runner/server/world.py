"""`World`: what services, controllers and routes share. Built once per server, never changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from arena_gitops import __version__
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.home import Home
from arena_runner.server.hosts import Hosts
from arena_runner.server.kept import Kept
from arena_runner.server.keys import Keys, keys_of
from arena_runner.server.proofs import Proofs
from arena_runner.server.services.split_files import Downloads
from arena_runner.server.services.wheel_files import Resolvers
from arena_runner.server.settings import Settings, TierFile
from arena_runner.server.store.database import Store
from arena_runner.server.traffic import Traffic

VERSION = __version__
"""Both halves are released together; the CLI replaces a server of another version."""


SOON_S = 0.2


class Bell:
    """Wakes the controllers when something has changed; they would notice later anyway."""

    def __init__(self) -> None:
        self._events: list[threading.Event] = []

    def hear(self) -> threading.Event:
        """An event that every ring sets."""
        event = threading.Event()
        self._events.append(event)
        return event

    def ring(self) -> None:
        """Something has changed."""
        for event in self._events:
            event.set()

    def ring_soon(self) -> None:
        """Something has changed, and what had to be done at once is done: whoever asked is answered first."""
        timer = threading.Timer(SOON_S, self.ring)
        timer.daemon = True
        timer.start()


@dataclass(frozen=True, slots=True)
class ModelServer:
    """Where a model server listens."""

    url: str
    token: str


@dataclass(slots=True)
class Links:
    """Addresses that are known only once other processes run."""

    server: str = ""
    mlflow: str | None = None
    """`http://127.0.0.1:…` of the tracking server; None until it is known"""
    mlflow_ready: threading.Event = field(default_factory=threading.Event)
    model_servers: dict[str, ModelServer] = field(default_factory=dict)
    """by place (`places.Place.key`): those that answer now; the deployments controller keeps it"""
    wanted_models: frozenset[str] = frozenset()
    """places that something should be served from; the deployments controller says it"""
    starts: dict[str, int] = field(default_factory=dict)
    """by process kept alive, how often this server has started it"""
    traffic: Traffic = field(default_factory=Traffic)
    proofs: Proofs = field(default_factory=Proofs)
    hosts: Hosts = field(default_factory=Hosts)
    """of other machines"""


@dataclass(frozen=True, slots=True)
class World:
    """Store, blobs, settings, clock and bell of one server."""

    home: Home
    store: Store
    blobs: BlobStore
    settings: Settings
    tiers: TierFile
    bell: Bell = field(default_factory=Bell)
    links: Links = field(default_factory=Links)
    states: Kept = field(default_factory=Kept)
    resolvers: Resolvers = field(default_factory=Resolvers)
    downloads: Downloads = field(default_factory=Downloads)
    draining: threading.Event = field(default_factory=threading.Event)
    """set when the server is about to stop: nothing new is handed out"""
    clock: Callable[[], float] = time.time

    @property
    def public(self) -> str:
        """The address that people are told."""
        return self.settings.public_url or self.links.server

    @property
    def dashboard(self) -> str | None:
        """Where people see MLflow: behind our login; None while there is no MLflow."""
        return f"{self.public}/mlflow" if self.links.mlflow else None

    @property
    def keys(self) -> Keys:
        """What this server encrypts and signs with."""
        return keys_of(self.home)
