"""What Prometheus is told: requests are counted as they end, everything else is read from the store when it asks.

Names follow the Prometheus conventions; labels have few values (routes, states, tiers), never ids.
"""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import RunState
from arena_runner.server.services import workers
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import (
    AliasRow,
    DeploymentStateRow,
    EventRow,
    ResourceRow,
    RunRow,
    RunStateRow,
)
from arena_runner.server.summary import Summary
from arena_runner.server.world import VERSION, World

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BLOBS_EVERY_S = 60.0
"""How old the count of the blobs' bytes may be: it looks at every file."""
DEPLOYMENT_STATES = ("pending", "loading", "probing", "serving", "held", "failed", "undeployed")


class Meters:
    """The registry of one server."""

    def __init__(self, world: World | None) -> None:
        self.registry = CollectorRegistry()
        self._traffic = world.links.traffic if world is not None else None
        self._requests = Histogram(
            "arena_http_request_duration_seconds",
            "Time until the end of an answer, by route",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        if world is not None:
            self.registry.register(_Observed(world))

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has ended."""
        known = method if method in METHODS else "other"  # anybody can make up methods
        self._requests.labels(known, route, str(status)).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry) + (self._traffic.text() if self._traffic else b"")


class _Observed(Collector):
    """Figures that are true when somebody asks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._blobs: tuple[float, int] | None = None

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registry that is told no names does not have to collect to register."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Everything, from one look at the store."""
        with self._world.store.read() as session:
            yield from _runs(session)
            yield from _queue(session, self._world)
            yield from _work(session, self._world)
            yield _workers(session, self._world)
            yield _backlog(session)
            yield _deployments(session)
            yield _aliases(session)
        yield from self._processes()
        yield _one("arena_blob_bytes", "Bytes of all blobs", self._blob_bytes())
        yield _free(self._world.home.root)
        info = GaugeMetricFamily("arena_build_info", "Always 1", labels=("version", "python"))
        info.add_metric((VERSION, platform.python_version()), 1.0)
        yield info

    def _processes(self) -> Iterator[Metric]:
        links = self._world.links
        yield _one("arena_mlflow_up", "Whether MLflow answers", float(links.mlflow_ready.is_set()))
        yield _one("arena_model_servers_up", "Model servers that answer", float(len(links.model_servers)))
        starts = CounterMetricFamily(
            "arena_process_starts",
            "Starts of MLflow and of model servers, by base model",
            labels=("process",),
        )
        for name, count in sorted(links.starts.items()):
            starts.add_metric((name,), float(count))
        yield starts

    def _blob_bytes(self) -> float:
        now = time.monotonic()
        if self._blobs is None or now - self._blobs[0] > BLOBS_EVERY_S:
            self._blobs = (now, _bytes_below(self._world.home.blobs))
        return float(self._blobs[1])


def _runs(session: Session) -> Iterator[Metric]:
    query = select(RunStateRow.state, func.count()).group_by(RunStateRow.state)
    runs = {state.value: 0.0 for state in RunState}
    runs |= {state: float(count) for state, count in session.execute(query)}
    yield _by("arena_runs", "Runs by state", "state", runs)


def _queue(session: Session, world: World) -> Iterator[Metric]:
    """By tier as it is resolved here: unknown names wait for the tier that stands in for them."""
    query = select(RunRow.tier, func.count(), func.min(RunStateRow.updated)).join(RunStateRow)
    query = query.where(RunStateRow.state == RunState.QUEUED).group_by(RunRow.tier)
    lengths = {tier.id: 0.0 for tier in world.tiers.tiers}
    ages, now = dict(lengths), world.clock()
    for wanted, count, oldest in session.execute(query):
        tier = resolve_tier(wanted, world.tiers)[0].id
        lengths[tier] += count
        ages[tier] = max(ages[tier], now - oldest)
    yield _by("arena_queue_length", "Runs that wait for a worker", "tier", lengths)
    yield _by("arena_queue_oldest_seconds", "How long the first of them has waited", "tier", ages)


def _work(session: Session, world: World) -> Iterator[Metric]:
    query = select(RunRow.tier, RunStateRow.summary).join(RunStateRow)
    busy = {tier.id: 0.0 for tier in world.tiers.tiers}
    speed = dict(busy)
    for wanted, raw in session.execute(
        query.where(RunStateRow.state.in_((RunState.VALIDATING, RunState.RUNNING)))
    ):
        tier = resolve_tier(wanted, world.tiers)[0].id
        busy[tier] += 1
        members = Summary.model_validate(raw).members
        speed[tier] += sum(member.tokens_per_second or 0.0 for member in members)
    yield _by("arena_workers_busy", "Workers with a job", "tier", busy)
    yield _by("arena_training_tokens_per_second", "As the workers reported last", "tier", speed)


def _workers(session: Session, world: World) -> Metric:
    family = GaugeMetricFamily("arena_workers", "Workers by tier and state", labels=("tier", "state"))
    found = Counter((worker.tier, worker.state) for worker in workers.listing(session, world))
    for tier in world.tiers.tiers:
        for state in ("idle", "busy", "lost"):
            family.add_metric((tier.id, state), float(found[tier.id, state]))
    return family


def _backlog(session: Session) -> Metric:
    waiting = session.scalar(select(func.count()).select_from(EventRow).where(~EventRow.tracked)) or 0
    return _one("arena_events_untracked", "Events that MLflow does not have yet", float(waiting))


def _deployments(session: Session) -> Metric:
    query = select(DeploymentStateRow.state, func.count()).join(
        ResourceRow,
        (ResourceRow.namespace == DeploymentStateRow.namespace)
        & (ResourceRow.name == DeploymentStateRow.name)
        & (ResourceRow.kind == "deployment")
        & ~ResourceRow.retired,
    )
    states = dict.fromkeys(DEPLOYMENT_STATES, 0.0)
    query = query.group_by(DeploymentStateRow.state)
    states |= {state: float(count) for state, count in session.execute(query)}
    return _by("arena_deployments", "Deployments by state", "state", states)


def _aliases(session: Session) -> Metric:
    newest = session.scalar(select(func.max(AliasRow.updated))) or 0.0
    return _one(
        "arena_aliases_mirrored_timestamp_seconds", "When MLflow's aliases were last looked at", newest
    )


def _free(root: Path) -> Metric:
    found = os.statvfs(root)
    return _one(
        "arena_disk_free_bytes", "Of the disk that holds the home", float(found.f_bavail * found.f_frsize)
    )


def _bytes_below(root: Path) -> int:
    return sum(
        (Path(folder) / name).stat().st_size
        for folder, _, names in os.walk(root)
        for name in names
        if not name.startswith(".")  # a file that is still coming in may be gone before it is looked at
    )


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by(name: str, text: str, label: str, values: dict[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
