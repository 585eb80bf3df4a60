"""Which adapters have been shown to answer by the weights they should: each in one life of one model server.

A cache and nothing else: empty after a start of this server, and of no use once the model server is another process,
because each of those has a token of its own. What stands here has its proof repeated in part only
(`server.probe.probe_again`), so that going back to it takes a moment.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena_runner.server.world import ModelServer


class Proofs:
    """Written by whoever probes, read by whoever switches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, set[str]] = {}

    def note(self, server: ModelServer, adapter: str) -> None:
        """It was proved, and answered."""
        with self._lock:
            self._known.setdefault(server.token, set()).add(adapter)

    def holds(self, server: ModelServer | None, adapter: str) -> bool:
        """Whether this very process has proved it and still has it."""
        with self._lock:
            return server is not None and adapter in self._known.get(server.token, ())

    def drop(self, server: ModelServer, adapter: str) -> None:
        """It is about to be unloaded."""
        with self._lock:
            self._known.get(server.token, set()).discard(adapter)

    def forget_but(self, servers: tuple[ModelServer, ...]) -> None:
        """Processes that are gone prove nothing any more."""
        with self._lock:
            living = {server.token for server in servers}
            self._known = {token: names for token, names in self._known.items() if token in living}
