"""What workers of other machines and the server say to each other apart from claims and events (`spec.wire`).

| call | request | answer |
|---|---|---|
| `POST /api/v1/workers/register` | `WorkerHello` | `WorkerWelcome`; 426 to another version, 403 to another tier |
| `POST /api/v1/workers/leave` | `WorkerGoodbye` | 204 |
| `GET  /api/v1/workers` | | list of `WorkerStatus` |
| `POST /api/v1/workers/jobs/{run_id}/{segment}/hand-back` | `HandBack` | 204; 409 when the job is another's |
| `POST /api/v1/workers/hosts` | `HostReport` | `HostOrders`; 426 to another version, 403 to another tier |
| `GET  /api/v1/models/{id}@{revision}/` | | `ModelListing`; 404 where the server has no such folder |
| `GET  /api/v1/models/{id}@{revision}/{path}` | `Range` | the file |
| `GET  /api/v1/wheels/` | `WheelTarget` as query | `WheelListing`; 503 while it is being resolved, 422 when it cannot be, 424 when the index does not answer |
| `GET  /api/v1/wheels/{path}` | the same query, `Range` | the file |
| `GET  /api/v1/splits/` | | `SplitListing`; 503 while it comes, 422 when the hub has no such thing, 424 when it does not answer |
| `GET  /api/v1/splits/{path}` | `Range` | the file |
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from arena_gitops.spec.job import Digest, ModelRef
from arena_gitops.spec.resource import Frozen, Name

PlatformTag = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]
WorkerId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class WorkerHello(Frozen):
    """A worker introduces itself before its first claim."""

    worker_id: WorkerId
    hostname: Annotated[str, Field(max_length=255)]
    tier: str
    version: str
    slots: Literal[1] = 1
    """jobs it does at once"""


class WorkerWelcome(Frozen):
    """It may ask for jobs."""

    tier: str
    poll_s: float = 5.0
    """the longest it should wait between two questions"""


class WorkerGoodbye(Frozen):
    """A worker that holds no job ends."""

    worker_id: WorkerId


class HandBack(Frozen):
    """A worker gives its job back before the end: the next one continues from the last resume state."""

    fence: int
    message: Annotated[str, Field(max_length=4000)] = ""
    fault: bool = False
    """the worker failed on it, which counts as a restart; without it the worker only had to go"""


class WorkerStatus(Frozen):
    """A worker as the server knows it."""

    worker_id: str
    hostname: str
    tier: str
    executor: Literal["local", "pull"]
    """who started it: the server, or somebody on another machine"""
    state: Literal["idle", "busy", "lost"]
    """`lost`: nothing was heard of it for longer than a lease lasts"""
    version: str
    heartbeat: float
    """when it was heard of last"""
    run_id: str | None = None
    experiment: Name | None = None


class HostedModel(Frozen):
    """One model server of a serving host, as the host sees it."""

    state: Literal["starting", "answering", "broken"]
    token: Annotated[str, Field(max_length=200)] | None = None
    """opens it, and tells it from the process before it; where it answers"""
    message: Annotated[str, Field(max_length=4000)] = ""
    """why it is broken"""


class HostReport(Frozen):
    """A serving host says that it is there, where it is reached, and what it serves: at first, and again and again."""

    host_id: WorkerId
    hostname: Annotated[str, Field(max_length=255)]
    tier: str
    version: str
    url: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$", max_length=300)] | None
    """by which the server reaches its model servers; None: over connections that the host opens"""
    models: dict[str, HostedModel] = Field(default_factory=dict)
    """by `HostOrder.key`"""
    leaving: bool = False
    """it ends: nothing is asked of it any more"""


class HostOrder(Frozen):
    """One model server that a host should run."""

    key: str
    model: ModelRef
    engine: Literal["torch", "vllm"]


class HostOrders(Frozen):
    """All that a host should run; what it runs beside them it ends."""

    models: tuple[HostOrder, ...]
    poll_s: float = 2.0
    """the longest it should wait before it reports again"""


class ModelFile(Frozen):
    """One file of a model's folder."""

    path: str
    size: int
    digest: Digest


class ModelListing(Frozen):
    """The files of a base model in the server's models folder."""

    id: str
    digest: Digest
    """over names and digests of the files: what a worker's cache calls it"""
    files: tuple[ModelFile, ...]


class SplitListing(Frozen):
    """The files of the split of a hub's dataset that the caller's job trains on."""

    revision: str
    """the commit of the hub they are from"""
    digest: Digest
    """over names and digests of the files: what a worker's cache calls them"""
    files: tuple[ModelFile, ...]


class WheelTarget(Frozen):
    """The interpreter that packages are for, as installers name it."""

    python: Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")]
    implementation: Annotated[str, Field(pattern=r"^[a-z]{2}$")] = "cp"
    platform: Annotated[tuple[PlatformTag, ...], Field(min_length=1, max_length=128)]
    """the best first"""


class WheelFile(Frozen):
    """One package, built."""

    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl$")]
    size: int
    digest: Digest


class WheelListing(Frozen):
    """The packages that the reward of the caller's job requires, and what they require in turn."""

    digest: Digest
    """over names and digests of the files: what a worker's cache calls them"""
    files: tuple[WheelFile, ...]
