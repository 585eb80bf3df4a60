"""Every table. What shall be (`resources`, `runs`) and what is (`run_states`, `deployment_states`) are apart.

Only types that SQLite and PostgreSQL share. Times are seconds since the epoch. Changing a column here needs a
migration in `migrations/versions`; a test compares the two.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Json = dict[str, Any]
Big = Annotated[int, mapped_column(BigInteger().with_variant(Integer(), "sqlite"))]
"""steps and bytes; PostgreSQL's INTEGER ends at 2^31, SQLite's does not"""
HOLD = "hold"


class Base(DeclarativeBase):
    """Common base; its metadata is what migrations are compared with."""

    # A JSON column that holds nothing is NULL, not the JSON text `null`.
    type_annotation_map = {Json: JSON(none_as_null=True)}  # noqa: RUF012 - SQLAlchemy reads a plain attribute


class MetaRow(Base):
    """Facts about this database: its lineage."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class TokenRow(Base):
    """A bearer token, by the hash of its text."""

    __tablename__ = "tokens"
    hash: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    """what people call it; derived from the hash"""
    kind: Mapped[str]
    """`bearer`, `browser` or `refresh`"""
    name: Mapped[str]
    role: Mapped[str]
    subject: Mapped[str]
    parent: Mapped[str | None] = mapped_column(index=True)
    """id of the token it was made from, without which it is dead"""
    run_id: Mapped[str | None] = mapped_column(index=True)
    """a worker's token opens this run only"""
    tier: Mapped[str | None]
    """a pool worker's token serves this tier only"""
    created: Mapped[float]
    expires: Mapped[float | None]
    last_used: Mapped[float | None]
    revoked: Mapped[float | None]


class ResourceRow(Base):
    """Desired: one managed resource as its owner last PUT it."""

    __tablename__ = "resources"
    __table_args__ = (UniqueConstraint("namespace", "kind", "name"), Index("ix_owner", "namespace", "stack"))
    id: Mapped[int] = mapped_column(primary_key=True)
    namespace: Mapped[str]
    kind: Mapped[str]
    name: Mapped[str]
    stack: Mapped[str]
    spec: Mapped[Json]
    fingerprint: Mapped[Json]
    provenance: Mapped[Json]
    rerun: Mapped[int]
    generation: Mapped[int]
    """counts changes; part of the etag"""
    version: Mapped[int]
    retired: Mapped[bool]
    created: Mapped[float]
    updated: Mapped[float]

    @property
    def etag(self) -> str:
        """Changes whenever the resource does, also when it is retired and made anew."""
        return f"{self.id}.{self.generation}"


class VersionRow(Base):
    """History: every content an address has had; for experiments, the run that trained it."""

    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("namespace", "kind", "name", "version"),
        UniqueConstraint("namespace", "kind", "name", "identity", "rerun"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    namespace: Mapped[str]
    kind: Mapped[str]
    name: Mapped[str]
    version: Mapped[int]
    identity: Mapped[str]
    """run fingerprint of an experiment, data fingerprint of anything else"""
    rerun: Mapped[int]
    run_id: Mapped[str | None] = mapped_column(index=True)
    spec: Mapped[Json]
    created: Mapped[float]


class RunRow(Base):
    """Desired: the work for one (fingerprint, rerun)."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(primary_key=True)
    namespace: Mapped[str]
    experiment: Mapped[str]
    project: Mapped[str | None]
    version: Mapped[int]
    fingerprint: Mapped[str] = mapped_column(index=True)
    rerun: Mapped[int]
    spec: Mapped[Json]
    """`ExperimentSpec` that asked for it last: budgets may have moved since the run was made"""
    inputs: Mapped[Json]
    """`JobInputs`; the base adapter's files are filled in when its run has ended"""
    provenance: Mapped[Json]
    tier: Mapped[str | None]
    max_steps: Mapped[Big]
    max_runtime_s: Mapped[float | None]
    max_credits: Mapped[float | None]
    wanted: Mapped[str]
    """`run` or `stop`"""
    stop_cause: Mapped[str | None]
    """why `stop` is wanted: `user`, `retired`, `replaced`, `budget`"""
    stopped_by: Mapped[str | None]
    """who asked for the stop, where a person did"""
    request_id: Mapped[str | None]
    """of the request that made it"""
    created: Mapped[float]


class RunStateRow(Base):
    """Observed: where a run is, who works on it, what is known."""

    __tablename__ = "run_states"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    state: Mapped[str] = mapped_column(index=True)
    reason: Mapped[str | None]
    message: Mapped[str]
    segments: Mapped[int]
    fence: Mapped[int]
    """rises with every claim, so that a late old worker is refused"""
    worker_id: Mapped[str | None]
    worker_pid: Mapped[int | None]
    worker_started: Mapped[float | None]
    """start time of the process, which tells it from a later one of the same pid"""
    starts: Mapped[int]
    restarts: Mapped[int]
    """infrastructure failures in a row without a new resume state"""
    heartbeat: Mapped[float | None]
    claimed: Mapped[float | None]
    spent_s: Mapped[float]
    """worker time of the segments that have ended"""
    spent_credits: Mapped[float]
    """what they cost, each at the price of its tier"""
    rate: Mapped[float | None]
    """credits per hour of the segment at work"""
    retries: Mapped[int]
    """failures of the run itself that its `retry` has spent"""
    job_max_steps: Mapped[Big | None]
    model: Mapped[Json | None]
    """the base model as the first worker resolved it: later segments and deployments use that revision"""
    resume: Mapped[Json | None]
    resume_before: Mapped[Json | None]
    """the resume state before the last: two are kept"""
    summary: Mapped[Json]
    last_index: Mapped[int]
    last_seq: Mapped[int]
    tracking: Mapped[Json | None]
    """MLflow ids: experiment, parent run, member runs"""
    tracked_state: Mapped[str | None]
    """the state MLflow was told last"""
    updated: Mapped[float]


class EventRow(Base):
    """One line of a worker's report; `tracked` once MLflow has it (the outbox)."""

    __tablename__ = "events"
    __table_args__ = (
        UniqueConstraint("run_id", "segment", "seq"),
        UniqueConstraint("run_id", "position"),
        Index("ix_outbox", "tracked", "run_id", "position"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    position: Mapped[int]
    segment: Mapped[int]
    seq: Mapped[int]
    type: Mapped[str]
    body: Mapped[Json]
    tracked: Mapped[bool]


class CheckpointRow(Base):
    """One export of one member."""

    __tablename__ = "checkpoints"
    __table_args__ = (UniqueConstraint("run_id", "step", "member"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    step: Mapped[Big]
    member: Mapped[int]
    generation: Mapped[int]
    fitness: Mapped[float | None]
    digest: Mapped[str]
    files: Mapped[Json]
    size_bytes: Mapped[Big]
    hyperparameters: Mapped[Json]
    position: Mapped[int]
    """of the event that reported it"""


class DeploymentStateRow(Base):
    """Observed: what a deployment serves, and why not something else."""

    __tablename__ = "deployment_states"
    namespace: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    message: Mapped[str]
    revision: Mapped[int]
    """the revision that serves; 0 before the first"""
    refused: Mapped[str | None]
    """etag and digest of a rollout that failed: not tried again until one of them changes"""
    pinned: Mapped[Json | None]
    """what people decided: what an `@alias` meant when the deployment was PUT, and under `hold` a rollback"""
    updated: Mapped[float]

    @property
    def pin(self) -> Json | None:
        """What an `@alias` meant; None for a standing choice."""
        return {k: v for k, v in (self.pinned or {}).items() if k != HOLD} or None

    @property
    def hold(self) -> Json | None:
        """A rollback: revision, wanted, by, since."""
        found: Json | None = (self.pinned or {}).get(HOLD)
        return found

    def decide(self, pin: Json | None, hold: Json | None) -> None:
        """Store both, as one new value: SQLAlchemy does not see changes inside one."""
        self.pinned = {**(pin or {}), **({HOLD: hold} if hold else {})} or None


class RevisionRow(Base):
    """One rollout of a deployment, kept for rollback."""

    __tablename__ = "revisions"
    __table_args__ = (UniqueConstraint("namespace", "deployment", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    namespace: Mapped[str]
    deployment: Mapped[str]
    number: Mapped[int]
    run_id: Mapped[str]
    version: Mapped[int]
    step: Mapped[Big]
    member: Mapped[int]
    digest: Mapped[str]
    files: Mapped[Json]
    model: Mapped[Json]
    place: Mapped[Json | None]
    """engine and tier, where they are not this server's own (`server.places`)"""
    adapter: Mapped[str]
    """its unique name in the model server"""
    state: Mapped[str]
    """`loading`, `serving`, `superseded`, `failed`"""
    message: Mapped[str]
    created: Mapped[float]
    updated: Mapped[float]

    @property
    def checkpoint(self) -> str:
        """`step_N/mK`."""
        return f"step_{self.step}/m{self.member}"


class IdempotencyRow(Base):
    """The answer a key was given, so that a repeat gets the same one."""

    __tablename__ = "idempotency"
    key: Mapped[str] = mapped_column(primary_key=True)
    body_hash: Mapped[str]
    answer: Mapped[Json]
    created: Mapped[float] = mapped_column(index=True)


class AliasRow(Base):
    """Mirror of MLflow's registered-model aliases."""

    __tablename__ = "aliases"
    model: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str]
    updated: Mapped[float]


class SeriesRow(Base):
    """How far MLflow knows one metric series; a resumed segment's repeats are recognised by it."""

    __tablename__ = "series"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    member: Mapped[int] = mapped_column(primary_key=True)
    """-1 for the run as a whole"""
    key: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[Big]


class RegistrationRow(Base):
    """A checkpoint that is a version of a registered model in MLflow."""

    __tablename__ = "registrations"
    model: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    step: Mapped[Big] = mapped_column(primary_key=True)
    member: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[str]


class ChatSessionRow(Base):
    """One conversation of one person with a deployment."""

    __tablename__ = "chat_sessions"
    namespace: Mapped[str] = mapped_column(primary_key=True)
    deployment: Mapped[str] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    session: Mapped[str] = mapped_column(primary_key=True)
    """the client makes it up"""
    content: Mapped[Json]
    """`messages`, oldest first"""
    created: Mapped[float]
    updated: Mapped[float]
