"""Bodies of the native API (`/api/v1`), shared by the HTTP adapter and the server.

| call | request | answer |
|---|---|---|
| `GET  /api/v1/state?stack=&namespace=` | | `StateDocument` (ETag; 304) |
| `HEAD/PUT/GET /api/v1/blobs/{sha256}` | raw bytes; HEAD `?verify=true` | 200/201/404; 422 when the bytes do not hash to the name |
| `PUT  /api/v1/resources/{kind}/{name}` | `PutResource`; `If-Match`, `Idempotency-Key`, `Arena-Fence` | `ResourceDocument` |
| `DELETE /api/v1/resources/{kind}/{name}?stack=&namespace=&mode=` | `mode`: retire, purge; `If-Match`, `Arena-Fence` | 204 |
| `POST /api/v1/leases` | `LeaseRequest` (`spec.lease`) | `Lease`; 423 with who holds it |
| `GET  /api/v1/leases?stack=&namespace=`, `POST …/{id}/heartbeat`, `DELETE` | `Heartbeat` | list of `Lease`; `Lease`; 204 |
| `POST /api/v1/checks` | `CheckRequest` | NDJSON of `CheckResult`, then `CheckSummary` |
| `GET  /api/v1/runs/{id}`, `POST …/stop`; `GET …/events?after=N`, `…/logs?after=BYTES` | | `RunStatus`; NDJSON of `StoredEvent`; text |
| `POST /api/v1/workers/claim` | `ClaimRequest` | `Claim`, or 204 when there is nothing to do |
| `POST /api/v1/workers/jobs/{run_id}/{segment}/events` | `EventBatch` | `EventReceipt` |
| `GET  /api/v1/deployments/{name}/revisions?namespace=` | | list of `Revision` |
| `POST /api/v1/deployments/{name}/rollback`; `…/resume`, `POST /api/v1/experiments/{name}/resume` | `RollbackRequest`; `ResumeRequest` | `ResourceDocument` |
| `GET  /api/v1/tiers`, `/api/v1/audit?model=&alias=&limit=` | | list of `Tier`; of `AliasChange`, newest first |
| `/api/v1/secrets…`; `/api/v1/workers/…`, `/api/v1/models/…`; `GET  /healthz`, `/readyz` | `spec.secret`; `spec.worker` | |

Every error answer is `ErrorBody`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.inputs import EnvironmentProfile
from arena_gitops.spec.job import Digest, JobEvent, JobInputs, JobSpec, ModelRef, RunStatus
from arena_gitops.spec.memory import ModelFacts
from arena_gitops.spec.resource import Frozen, Name
from arena_gitops.spec.serving import Traffic

REQUEST_ID = "X-Request-Id"
"""Header that names a request, from the command through the server's log to the worker it starts"""


class ErrorBody(Frozen):
    """Every refusal: stable code, text without square brackets, details for machines."""

    code: str
    message: str
    details: dict[str, str] = Field(default_factory=dict)


class Provenance(Frozen):
    """Where a spec came from."""

    repo: str | None = None
    commit: str | None = None
    path: str | None = None
    dirty: bool = False


class Owner(Frozen):
    """Who may change a resource: a stack within a namespace."""

    stack: str
    namespace: str = "main"


class Tier(Frozen):
    """A compute class with a price."""

    id: str
    gpu_type: str | None = None
    num_gpus: int = 0
    num_cpus: int
    ram_gb: float
    credits_per_node_hour: float
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    """of one GPU; where absent it is taken from `gpu_type`, if that is known"""
    region: str | None = None
    """where it is; experiments may ask for one"""
    executor: Literal["local", "pull"] = "local"
    """who does its jobs: processes that the server starts, or workers of other machines that ask for them"""
    slots: int | None = None
    """jobs that may run beside each other; absent: 1, and where workers pull as many as there are workers"""
    job_gb: float | None = Field(default=None, gt=0)
    """memory that one training job is given; absent: not counted"""
    serving_gb: float = Field(default=0.0, ge=0)
    """memory that one served base model is given"""
    serving: Literal["local", "pull"] = "local"
    """who serves its deployments: processes that the server starts, or hosts of other machines that ask"""
    engine: Literal["torch", "vllm"] | None = None
    """what generates where a deployment does not say; absent: the server's"""

    @property
    def places(self) -> int | None:
        """`slots` with its default; None: as many as there are workers."""
        return 1 if self.slots is None and self.executor == "local" else self.slots


class AliasChoice(Frozen):
    """What a person's alias means now, asked while the state was read."""

    alias: str
    known: bool = True
    """False: MLflow did not answer, which is not the same as no alias"""
    version: str | None = None
    """of the registered model; None where the alias names nothing"""
    run_id: str | None = None
    run_version: int | None = None
    checkpoint: str | None = None
    """`step_N/mK`"""
    digest: Digest | None = None
    applied: bool = False
    """whether an apply has taken this choice over; only an apply moves traffic"""
    message: str = ""
    """why it names nothing, in words"""
    page: str | None = None
    """of the registered model in MLflow, where people choose"""
    by: str | None = None
    """who set the alias; None where it was not set through the server"""
    since: float | None = None


class Hold(Frozen):
    """A rollback that stays until the deployment's content changes or somebody resumes it."""

    revision: int
    """what serves meanwhile"""
    wanted: int
    """what served before, and would again"""
    by: str
    since: float


class DeploymentStatus(Frozen):
    """The served thing as the server sees it."""

    state: Literal["pending", "loading", "probing", "serving", "held", "failed", "undeployed"]
    message: str = ""
    revision: int = 0
    """revision that serves now; 0 before the first"""
    run_id: str | None = None
    checkpoint: str | None = None
    """`step_N/mK` of what serves now"""
    digest: Digest | None = None
    url: str | None = None
    """`…/i/<name>` once it serves"""
    choice: AliasChoice | None = None
    """of a deployment that names an `@alias`; only in answers to `GET state` with `Cache-Control: no-cache`"""
    hold: Hold | None = None
    refused: bool = False
    """whether the newest rollout failed and is not tried again by itself"""


class Revision(Frozen):
    """One rollout of a deployment."""

    number: int
    state: Literal["loading", "canary", "serving", "superseded", "failed"]
    run_id: str
    version: int
    """of the experiment"""
    checkpoint: str
    digest: Digest
    message: str = ""
    created: float


class RollbackRequest(Frozen):
    """Back to an earlier revision; without `to`, to the one that served before."""

    owner: Owner
    to: int | None = Field(default=None, ge=1)


class ResumeRequest(Frozen):
    """End a hold: of a deployment, trying a failed rollout again, or of an experiment's run."""

    owner: Owner


class ResourceDocument(Frozen):
    """One managed resource as the platform stores and sees it."""

    kind: str
    name: Name
    etag: str
    owner: Owner
    spec: dict[str, JsonValue]
    fingerprint: Fingerprint
    version: int = 1
    """counts data fingerprints of this address; v1 is the first"""
    run: RunStatus | None = None
    deployment: DeploymentStatus | None = None
    provenance: Provenance = Provenance()


class KnownRun(Frozen):
    """A run whose result can be reused by an equal run fingerprint."""

    run_id: str
    fingerprint: str
    experiment: Name
    version: int
    state: str
    fitness: float | None = None
    max_steps: int = 0
    rerun: int = 0
    """which training of the same fingerprint this is; equal work has both in common"""


class StateDocument(Frozen):
    """Everything managed by one stack in one namespace, in one answer."""

    platform: str
    version: str
    lineage: str
    """identity of the platform's database; a different one is a different world"""
    etag: str
    resources: tuple[ResourceDocument, ...]
    foreign: tuple[str, ...] = ()
    """addresses taken in this namespace by another owner: `kind/name owner-stack`"""
    runs: tuple[KnownRun, ...] = ()
    tiers: tuple[Tier, ...] = ()
    algorithms: tuple[str, ...] = ()
    """algorithms this platform can train; others are refused by the plan"""
    max_steps: int | None = None
    spent_this_month: float | None = None
    """credits of the stack's runs that were made in this month (UTC)"""
    models: tuple[ModelFacts, ...] = ()
    """shapes of the base models that are at hand, under every name they answer to"""
    secrets: dict[str, int] | None = None
    """versions of the secrets that have a value; absent: this server does not say"""
    profiles: tuple[EnvironmentProfile, ...] = ()


class PutResource(Frozen):
    """The body of a PUT: what the resource shall be."""

    owner: Owner
    spec: dict[str, JsonValue]
    fingerprint: Fingerprint
    provenance: Provenance = Provenance()
    rerun: int = 0
    adopt: bool = False
    """take over what commands have made under this name: its run and versions stay as they are, nothing is started"""
    choice: Digest | None = None
    """of the checkpoint that a person's alias must still name; where it names another one by now, nothing is done"""


class ExperimentSpec(Frozen):
    """`spec` of a stored experiment: enough to make its job without the repository."""

    description: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    owner: str | None = None
    lifecycle: dict[str, JsonValue] = Field(default_factory=dict)
    project: Name | None = None
    manifest: dict[str, JsonValue]
    """effective manifest in normal form"""
    defaulted: tuple[str, ...] = ()
    """paths in `manifest` that nobody wrote: their values are the defaults of the day it was stored"""
    inputs: JobInputs
    model: ModelRef | None = None
    trainer: str | None = None
    """version of the runner that it must be trained with; absent: any"""
    distinct: dict[str, JsonValue] = Field(default_factory=dict)
    """values that `lifecycle.on_change` makes a part of what is trained"""
    tier: str | None = None
    region: str | None = None
    """where the tier must be"""
    priority: int = 0
    """the higher goes first among the runs that wait for a tier"""
    num_nodes: int = 1
    budget: dict[str, JsonValue] = Field(default_factory=dict)
    """`max_runtime_s`, `max_credits`"""
    retry: dict[str, JsonValue] = Field(default_factory=dict)
    on_upstream_change: dict[str, str] = Field(default_factory=dict)
    reuse: bool = True
    """False: no other run's result stands for it"""
    notes: str = ""
    notify: tuple[str, ...] = ()
    rerun: int = 0
    """raised to train the same thing once more; `PutResource.rerun` repeats it"""


class Gate(Frozen):
    """What a checkpoint must reach before it serves."""

    metric: str = "eval/reward"
    min: float | None = None
    min_delta: float | None = None


class Best(Frozen):
    """By which figure the best checkpoint is chosen."""

    metric: str = "eval/reward"
    mode: Literal["max", "min"] = "max"


class DeploymentSpec(Traffic):
    """`spec` of a stored deployment."""

    description: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    owner: str | None = None
    lifecycle: dict[str, JsonValue] = Field(default_factory=dict)
    experiment: Name
    checkpoint: str = "best"
    best: Best | None = None
    gate: Gate | None = None
    tier: str | None = None
    engine: Literal["torch", "vllm"] | None = None


class CheckRequest(Frozen):
    """Dataset and reward checks of one experiment; a forecast asks its base model too."""

    address: str
    manifest: dict[str, JsonValue]
    inputs: JobInputs
    forecast: bool = False


class SampleScore(Frozen):
    """What a reward paid for one sample."""

    sample: str
    """which one, in words; the same sample has the same words in every run"""
    expect: float | None = None
    total: float | None = None
    error: str = ""


class CheckResult(Frozen):
    """One check's verdict."""

    type: Literal["check"] = "check"
    address: str
    name: str
    status: Literal["pass", "warn", "fail"]
    message: str = ""
    file: str | None = None
    line: int | None = None
    scores: tuple[SampleScore, ...] = ()
    profile: EnvironmentProfile | None = None


class CheckSummary(Frozen):
    """The last line of a checks stream."""

    type: Literal["summary"] = "summary"
    passed: int
    warned: int
    failed: int


CheckLine = Annotated[CheckResult | CheckSummary, Field(discriminator="type")]


class StoredEvent(Frozen):
    """An event with its place in the run's whole history."""

    index: int
    segment: int
    event: JobEvent


class ClaimRequest(Frozen):
    """A worker asks for work."""

    worker_id: str
    tier: str
    run_id: str | None = None
    """only this run (the local executor starts one worker for one run)"""


class Claim(Frozen):
    """A job, and the token that makes its reports valid (fencing)."""

    job: JobSpec
    fence: int
    heartbeat_s: float = 10.0
    token: str | None = None
    """opens this job and nothing else, until another worker claims it"""
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)
    """values of those that the job's reward names; in no other document"""


class EventBatch(Frozen):
    """Events of one segment, oldest first; an empty batch is a heartbeat."""

    fence: int
    events: tuple[JobEvent, ...] = ()


class EventReceipt(Frozen):
    """What the server says back to a worker."""

    accepted_seq: int
    directive: Literal["continue", "stop"] = "continue"
    max_steps: int | None = None
    """what is still asked for; a worker ends there, where that is less than it was given"""
