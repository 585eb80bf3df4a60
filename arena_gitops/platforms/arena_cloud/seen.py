"""What was read off the platform in one look, and the words of its rows in ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from arena_gitops.platforms.arena_cloud.names import VersionName, owner_tag
from arena_gitops.platforms.arena_rows import CheckpointRow, Deployment, Experiment, TierRow
from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.spec.job import Checkpoint, FailureReason, RunState, RunStatus
from arena_gitops.spec.resource import is_name
from arena_gitops.spec.wire import DeploymentStatus, Owner, Tier

MIB = 1 << 20

_STATES: Mapping[str, RunState] = {
    **dict.fromkeys(("queued", "pending", "submitted", "created", "scheduled"), RunState.QUEUED),
    **dict.fromkeys(("validating", "starting", "provisioning"), RunState.VALIDATING),
    **dict.fromkeys(
        ("completed", "complete", "finished", "succeeded", "success", "done"), RunState.COMPLETED
    ),
    **dict.fromkeys(
        ("stopped", "stopping", "cancelled", "canceled", "terminated", "aborted"), RunState.STOPPED
    ),
    **dict.fromkeys(("failed", "error", "errored"), RunState.FAILED),
}
"""Anything else is a run at work: what is not known to have ended is never started a second time."""


@dataclass(frozen=True, slots=True)
class Version:
    """An experiment on the platform whose name says that it is ours."""

    name: VersionName
    row: Experiment
    checkpoints: tuple[CheckpointRow, ...] = ()

    @property
    def state(self) -> RunState:
        """Where its run is."""
        return _STATES.get((self.row.status or "").lower(), RunState.RUNNING)

    @property
    def max_steps(self) -> int | None:
        """What was asked for, as far as the platform says."""
        return self.row.asked_steps or self.row.max_steps

    @property
    def etag(self) -> str:
        """Moves when more is asked for, never with progress."""
        return f"{self.name}@{self.max_steps}" if self.max_steps else str(self.name)

    def run(self, experiment: str, fingerprint: str, max_steps: int) -> RunStatus:
        """The run, as plans and people are told of it."""
        exports = tuple(_checkpoint(row) for row in self.checkpoints)
        return RunStatus(
            run_id=str(self.name),
            experiment=experiment,
            fingerprint=fingerprint,
            state=self.state,
            reason=_reason(self.row.reason),
            message=self._message(),
            max_steps=self.row.max_steps or max_steps,
            step=self.row.step or 0,
            checkpoints=exports,
            best=best_of(self.checkpoints),
            mlflow_url=self.row.mlflow_url,
        )

    def _message(self) -> str:
        known = (self.row.status or "").lower() in {*_STATES, "running"}
        said = self.row.message or ""
        return (
            said
            if known
            else f"the platform says {self.row.status!r}, which is taken for running {said}".strip()
        )


@dataclass(frozen=True)
class Seen:
    """One look at everything that concerns us."""

    projects: frozenset[str] = frozenset()
    datasets: frozenset[str] = frozenset()
    versions: tuple[Version, ...] = ()
    """of this owner, by base and number"""
    deployments: tuple[tuple[VersionName, Deployment], ...] = ()
    tiers: Mapping[str, Tier] = field(default_factory=lambda: MappingProxyType({}))
    balance: float | None = None
    """credits that are left, where it was asked for and is said"""

    @cached_property
    def bases(self) -> Mapping[str, tuple[Version, ...]]:
        """Beginning of a name → its versions, the oldest first."""
        found: dict[str, list[Version]] = {}
        for version in self.versions:
            found.setdefault(version.name.base, []).append(version)
        return {base: tuple(versions) for base, versions in found.items()}

    def named(self, name: str) -> Version | None:
        """A version by its whole name."""
        return next((version for version in self.versions if str(version.name) == name), None)

    def with_checkpoints(self, name: VersionName, rows: tuple[CheckpointRow, ...]) -> Seen:
        """The same, knowing what a version has exported."""
        versions = (replace(v, checkpoints=rows) if v.name == name else v for v in self.versions)
        return replace(self, versions=tuple(versions))


def versions_of(owner: Owner, rows: Iterable[Experiment]) -> tuple[Version, ...]:
    """Ours among the experiments; the same row may come from two lists."""
    found = {row.name: Version(name, row) for row in rows if (name := _ours(owner, row.name))}
    return tuple(sorted(found.values(), key=lambda version: (version.name.base, version.name.number)))


def deployments_of(owner: Owner, rows: Iterable[Deployment]) -> tuple[tuple[VersionName, Deployment], ...]:
    """Ours among the deployments: they have the name of what they serve."""
    named = ((_ours(owner, row.name) or _ours(owner, row.experiment_name or ""), row) for row in rows)
    return tuple((name, row) for name, row in named if name and row.status != "undeployed")


def tier(identity: str, row: TierRow) -> Tier:
    """A compute class in our words."""
    return Tier(
        id=identity,
        gpu_type=row.gpu_type,
        num_gpus=row.num_gpus or 0,
        num_cpus=row.num_cpus,
        ram_gb=row.ram_gb,
        credits_per_node_hour=row.price_per_node_hour,
    )


def served(name: VersionName, row: Deployment) -> DeploymentStatus:
    """A deployment in our words; with an address it serves, whatever it is called."""
    state = (
        row.status if row.status in {"pending", "loading", "probing", "serving", "held", "failed"} else None
    )
    known = state or ("serving" if row.url else "loading")
    return DeploymentStatus.model_validate(
        {
            "state": known,
            "message": row.message or "",
            "revision": row.revision if row.revision is not None else int(bool(row.url)),
            "run_id": str(name),
            "checkpoint": row.serves,
            "url": row.url,
        }
    )


def best_of(rows: Iterable[CheckpointRow]) -> Checkpoint | None:
    """The one that the platform calls best, else the fittest, the earliest of equals."""
    rows = tuple(rows)
    scored = [row for row in rows if row.fitness is not None and row.fitness == row.fitness]
    fittest = min(scored, key=lambda row: (-(row.fitness or 0.0), row.steps), default=None)
    chosen = next((row for row in rows if row.best), fittest)
    return None if chosen is None else _checkpoint(chosen)


def _ours(owner: Owner, text: str) -> VersionName | None:
    name = VersionName.parse(text)
    return name if name is not None and name.owner == owner_tag(owner) and is_name(name.base) else None


def _checkpoint(row: CheckpointRow) -> Checkpoint:
    return Checkpoint(
        step=row.steps,
        member=row.member or 0,
        generation=row.generation or 0,
        fitness=row.fitness,
        digest=sha256_bytes(f"{row.name} {row.digest}".encode()),
        files={},
        size_bytes=int((row.size_mb or 0.0) * MIB),
    )


def _reason(text: str | None) -> FailureReason | None:
    return FailureReason(text) if text in set(FailureReason) else None
