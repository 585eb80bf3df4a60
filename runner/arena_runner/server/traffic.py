"""What has been asked of each deployment, and how it went: figures for Prometheus, and the judgement over a revision.

Counted by the one process that answers, from its start: a server that was restarted judges a new revision anew.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RECENT_S = 60.0
"""over which tokens per second are told"""
KEPT = 200
"""first-token times that a median is taken of"""
BY = ("namespace", "deployment")

Outcome = Literal["ok", "failed", "unavailable", "rejected"]
"""`failed`: the model did; `unavailable`: nobody was there to ask; `rejected`: the request was wrong"""
Name = tuple[str, str]
"""namespace and deployment"""


@dataclass(slots=True)
class Tally:
    """One revision's requests."""

    requests: int = 0
    failures: int = 0
    first_token_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def median_first_token_s(self) -> float | None:
        """None before the first stream."""
        return statistics.median(self.first_token_s) if self.first_token_s else None


@dataclass(frozen=True, slots=True)
class Ended:
    """One request that is over."""

    outcome: Outcome
    seconds: float
    tokens: int = 0
    first_token_s: float | None = None


class Traffic:
    """Of one server. Written from its event loop, read from anywhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._tallies: dict[tuple[str, str, int], Tally] = {}
        self._tokens: dict[Name, deque[tuple[float, int]]] = {}
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "arena_inference_requests", "Requests that have ended", (*BY, "outcome"), registry=registry
        )
        self._generated = Counter("arena_inference_tokens", "Tokens generated", BY, registry=registry)
        self._seconds = Histogram(
            "arena_inference_seconds",
            "From a request's turn to its end",
            BY,
            buckets=SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "arena_inference_first_token_seconds",
            "From a stream's turn to its first text",
            BY,
            buckets=SECONDS,
            registry=registry,
        )
        self._waited = Histogram(
            "arena_inference_queue_seconds", "Waiting for a turn", BY, buckets=SECONDS, registry=registry
        )
        self._active = Gauge("arena_inference_active", "Requests being answered", BY, registry=registry)
        self._waiting = Gauge("arena_inference_waiting", "Requests in the queue", BY, registry=registry)
        self._speed = Gauge(
            "arena_inference_tokens_per_second", "Over the last minute", BY, registry=registry
        )

    def ended(self, name: Name, revision: int, how: Ended) -> None:
        """A request of a revision is over."""
        self._requests.labels(*name, how.outcome).inc()
        if how.outcome in {"rejected", "unavailable"}:
            return  # says nothing about the revision, and took no time of its model
        self._seconds.labels(*name).observe(how.seconds)
        self._generated.labels(*name).inc(how.tokens)
        if how.first_token_s is not None:
            self._first.labels(*name).observe(how.first_token_s)
        with self._lock:
            tally = self._tallies.setdefault((*name, revision), Tally())
            tally.requests += 1
            tally.failures += how.outcome == "failed"
            if how.first_token_s is not None:
                tally.first_token_s.append(how.first_token_s)
            self._tokens.setdefault(name, deque()).append((self._clock(), how.tokens))

    def refused(self, name: Name) -> None:
        """A request found the queue full."""
        self._requests.labels(*name, "refused").inc()

    def queued(self, name: Name, *, active: int, waiting: int) -> None:
        """How many are answered, how many wait."""
        self._active.labels(*name).set(active)
        self._waiting.labels(*name).set(waiting)

    def waited(self, name: Name, seconds: float) -> None:
        """A request's turn has come."""
        self._waited.labels(*name).observe(seconds)

    def tally(self, name: Name, revision: int) -> Tally:
        """A copy of what is known of a revision."""
        with self._lock:
            found = self._tallies.get((*name, revision), Tally())
            return Tally(found.requests, found.failures, found.first_token_s.copy())

    def begin(self, name: Name, revision: int) -> None:
        """Judge a revision from here on."""
        with self._lock:
            self._tallies[(*name, revision)] = Tally()

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        with self._lock:
            since = self._clock() - RECENT_S
            for name, recent in self._tokens.items():
                while recent and recent[0][0] < since:
                    recent.popleft()
                self._speed.labels(*name).set(sum(tokens for _, tokens in recent) / RECENT_S)
        return generate_latest(self.registry)
