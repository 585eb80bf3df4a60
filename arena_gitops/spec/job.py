"""The wire between the halves: what a worker receives, what it reports, what people are told about a run.

A `JobSpec` is everything a worker needs, by digest, so that local is remote. A `JobEvent` is one line of a
worker's append-only file; the server alone turns events into MLflow records and run status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, TypeAdapter

from arena_gitops.spec.inputs import (
    COLUMNS,
    BaseInput,
    DatasetCategory,
    DatasetInput,
    Digest,
    EnvironmentInput,
    HubDataset,
    JobInputs,
    RewardCase,
    RewardInput,
)
from arena_gitops.spec.resource import Frozen, Name

__all__ = [
    "COLUMNS",
    "BaseInput",
    "DatasetCategory",
    "DatasetInput",
    "Digest",
    "EnvironmentInput",
    "HubDataset",
    "JobInputs",
    "RewardCase",
    "RewardInput",
]
"""The wire's first part, which is imported from here like the rest."""


class ModelRef(Frozen):
    """The base model: hub id or name in the server's models folder, with its revision once known."""

    id: str
    revision: str | None = None


class JobLimits(Frozen):
    """Ceilings the server puts on a job, whatever its manifest says."""

    max_steps: int | None = None
    max_runtime_s: float | None = None


class ResumeState(Frozen):
    """Where a later segment continues: files by digest (adapters, moments, counters, lineage)."""

    iteration: int
    files: dict[str, Digest]


class JobSpec(Frozen):
    """What a worker receives: one segment of one run."""

    run_id: str
    segment: int
    """0 for the first start, counted up by every resume"""
    experiment: Name
    fingerprint: str
    manifest: dict[str, JsonValue]
    """the effective manifest in normal form (`spec.manifest.Manifest`)"""
    inputs: JobInputs
    model: ModelRef | None
    seed: int
    tier: str
    limits: JobLimits = JobLimits()
    resume: ResumeState | None = None
    request_id: str | None = None
    """of the request that made the run; the worker's lines and reports carry it"""


class RunState(StrEnum):
    """Where a run is. `failed` and `stopped` are held: nothing is spent again by itself."""

    QUEUED = "queued"
    VALIDATING = "validating"
    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether no worker will touch the run again without a new decision."""
        return self in {RunState.COMPLETED, RunState.STOPPED, RunState.FAILED}


class FailureReason(StrEnum):
    """Why a run failed; only `infra` is retried from the last checkpoint."""

    USER_CODE = "user_code"
    OOM = "oom"
    INFRA = "infra"
    BUDGET = "budget"


class Checkpoint(Frozen):
    """One export: a PEFT adapter by digest, with what was known when it was saved."""

    step: int
    """`max_steps` units: completions scored, for SFT rows"""
    member: int
    generation: int
    fitness: float | None
    digest: Digest
    """digest over `files`"""
    files: dict[str, Digest]
    size_bytes: int
    hyperparameters: dict[str, float] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """`step_N/mK`, the name by which a deployment pins it."""
        return f"step_{self.step}/m{self.member}"


class Lineage(Frozen):
    """What evolution did to one place at the end of one generation."""

    generation: int
    step: int
    member: int
    parent: int
    """the place whose weights, moments and hyperparameters were copied; itself when it was left alone"""
    mutation: str | None
    """the mutated hyperparameter, or None"""
    old: float | None = None
    new: float | None = None
    fitness: float | None
    """of the place before it was overwritten; None when it was not a number (the member diverged)"""
    parent_fitness: float | None
    paired_se: float | None = None
    """paired standard error of parent minus member over the shared evaluation rows"""


class TestScores(Frozen):
    """Mean scores on the test split, which neither training nor selection has seen."""

    label: Literal["base", "best"]
    rows: int
    mean: dict[str, float]
    """`reward` and each of its components"""
    stderr: dict[str, float]
    step: int | None = None
    member: int | None = None


class _Event(Frozen):
    seq: int = 0
    """1, 2, 3 … within a segment; a repeated seq is the same event. 0 until the worker's journal numbers it"""
    ts: float = 0.0
    """seconds since the epoch, for display only"""


class Started(_Event):
    """The worker has loaded everything and begins (or continues)."""

    type: Literal["started"] = "started"
    device: str
    dtype: str
    threads: int
    rows_in_flight: int
    tokens_per_backward: int
    engine: str = "torch"
    """what samples completions: `torch` or `vllm`"""
    versions: dict[str, str]
    model: ModelRef | None
    members: int
    max_steps: int
    resumed_at_iteration: int | None = None
    request_id: str | None = None


class Progress(_Event):
    """One member finished one iteration."""

    type: Literal["progress"] = "progress"
    member: int
    step: int
    max_steps: int
    iteration: int
    reward: float | None
    tokens_per_second: float | None
    eta_seconds: float | None


class Metrics(_Event):
    """Named values of one member (or of the run, member None) at one step."""

    type: Literal["metrics"] = "metrics"
    member: int | None
    step: int
    values: dict[str, float]


class Evaluation(_Event):
    """Fitness of one member on the evaluation split."""

    type: Literal["evaluation"] = "evaluation"
    member: int
    step: int
    generation: int
    fitness: float
    values: dict[str, float] = Field(default_factory=dict)


class Evolution(_Event):
    """The end of a generation: one lineage record for every place."""

    type: Literal["evolution"] = "evolution"
    generation: int
    records: tuple[Lineage, ...]


class CheckpointSaved(_Event):
    """An export has been uploaded."""

    type: Literal["checkpoint"] = "checkpoint"
    checkpoint: Checkpoint


class ResumeStateSaved(_Event):
    """A resume state has been uploaded; older ones than the last two may be dropped."""

    type: Literal["resume_state"] = "resume_state"
    state: ResumeState


class TestScored(_Event):
    """Base or best was scored on the test split."""

    type: Literal["test_scores"] = "test_scores"
    scores: TestScores


class Sample(_Event):
    """A completion people can read."""

    type: Literal["sample"] = "sample"
    member: int
    step: int
    prompt: str
    completion: str
    reward: float


class Filmed(_Event):
    """An episode of evaluation as the best checkpoint plays it, to look at; the file has been uploaded."""

    type: Literal["replay"] = "replay"
    member: int
    step: int
    steps: int
    """of the episode"""
    reward: float
    """what it paid in all"""
    files: dict[str, Digest]


class Log(_Event):
    """A line for people."""

    type: Literal["log"] = "log"
    level: Literal["debug", "info", "warning", "error"]
    message: str


class Finished(_Event):
    """The segment's last event."""

    type: Literal["finished"] = "finished"
    state: Literal[RunState.COMPLETED, RunState.STOPPED, RunState.FAILED]
    reason: FailureReason | None = None
    message: str = ""


JobEvent = Annotated[
    Started
    | Progress
    | Metrics
    | Evaluation
    | Evolution
    | CheckpointSaved
    | ResumeStateSaved
    | TestScored
    | Sample
    | Filmed
    | Log
    | Finished,
    Field(discriminator="type"),
]

JOB_EVENT: TypeAdapter[Any] = TypeAdapter(JobEvent)
"""Parses one event of any type."""


class MemberStatus(Frozen):
    """The newest figures of one place."""

    member: int
    step: int = 0
    iteration: int = 0
    reward: float | None = None
    fitness: float | None = None
    tokens_per_second: float | None = None
    eta_seconds: float | None = None


class RunStatus(Frozen):
    """What people and plans are told about a run."""

    run_id: str
    experiment: Name
    fingerprint: str
    state: RunState
    reason: FailureReason | None = None
    message: str = ""
    max_steps: int
    step: int = 0
    """the least advanced member's"""
    generation: int = 0
    segments: int = 0
    members: tuple[MemberStatus, ...] = ()
    best: Checkpoint | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    lineage: tuple[Lineage, ...] = ()
    test_scores: tuple[TestScores, ...] = ()
    warnings: tuple[str, ...] = ()
    """what its workers warned of, once each"""
    mlflow_url: str | None = None
    spent_s: float = 0.0
    """worker time of the segments that have ended"""
    stopped_by: str | None = None
    """who asked for the stop, of a run that a person has stopped"""
    ended: float | None = None
    """when it came to where it is; None while it waits or works"""
    model: ModelRef | None = None
    """the base model as its first worker resolved it; the run keeps to it"""
    trainer: str | None = None
    """version of the runner that trains it, as its newest segment said"""
    request_id: str | None = None
    """of the request that made the run: the server's and the worker's log lines have it"""
