"""What the Arena API answers, as far as it is read here; these are also the shapes that `--json` prints.

Fields that another server adds are not read, and those that one may leave out have a default: a shape never
depends on who answered.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Row(BaseModel):
    """One answer, or one line of a list."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Project(Row):
    """A name that experiments are gathered under."""

    name: str
    id: str | None = None
    type: str | None = None
    """`llm` or `simulation`"""
    description: str | None = None


class Dataset(Row):
    """A registered dataset."""

    name: str
    id: str | None = None
    category: str | None = None
    column_mapping: dict[str, str] = Field(default_factory=dict)
    description: str | None = None
    hf_dataset_id: str | None = None
    is_ready: bool | None = None
    status: str | None = None
    """`ready`, `pending` while the hub's rows are brought, `failed`, or `empty`"""
    message: str | None = None
    managed_by: str | None = None
    """the stack of a repository, or `imperative` for what commands made"""


class FoundDataset(Row):
    """A dataset of the hub."""

    name: str
    hf_dataset_id: str | None = None
    downloads: int | None = None
    likes: int | None = None
    description: str | None = None


class CreatedDataset(Row):
    """A dataset that was just created."""

    name: str
    id: str | None = None
    category: str | None = None
    is_ready: bool = False
    uploaded: bool = False
    status: str | None = None
    message: str = ""


class Existence(Row):
    """Whether there is such a thing."""

    exists: bool
    id: str | None = None


class EnvironmentVersion(Row):
    """One version of a registered environment."""

    name: str
    version: str
    validated: bool = False
    profiled: bool = False


class Experiment(Row):
    """An experiment and its current run."""

    name: str
    id: str | None = None
    project: str | None = None
    algorithm: str | None = None
    version: int | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    step: int | None = None
    max_steps: int | None = None
    asked_steps: int | None = None
    """before a server's own limit; ours says it"""
    fitness: float | None = None
    run_id: str | None = None
    mlflow_url: str | None = None
    managed_by: str | None = None


class RunOfExperiment(Row):
    """An experiment's run after it was stopped or resumed."""

    experiment_name: str
    run_id: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    step: int | None = None
    max_steps: int | None = None


class CheckpointRow(Row):
    """An export of a run."""

    name: str
    """what `agent deploy --checkpoint` takes"""
    steps: int
    member: int | None = None
    generation: int | None = None
    fitness: float | None = None
    best: bool = False
    size_mb: float | None = None
    digest: str | None = None


class Deployment(Row):
    """What is served under a name."""

    name: str
    id: str | None = None
    experiment_name: str | None = None
    project_name: str | None = None
    checkpoint: str | None = None
    """the rule that chooses"""
    status: str | None = None
    message: str | None = None
    revision: int | None = None
    serves: str | None = None
    """the checkpoint that answers now"""
    url: str | None = None
    memory_scope: str | None = None
    """`user` or `organization`: who shares its conversations"""
    managed_by: str | None = None


class OneDeployment(Deployment):
    """A deployment that was asked for by itself."""

    settled: bool | None = None
    """whether it serves what it should; None where a server does not say"""


class TierRow(Row):
    """A compute class."""

    name: str
    price_per_node_hour: float = 0.0
    num_cpus: int = 0
    ram_gb: float = 0.0
    gpu_type: str | None = None
    num_gpus: int | None = None


class Tiers(Row):
    """Every compute class."""

    tiers: dict[str, TierRow]


class Model(Row):
    """A base model of the server."""

    model_config = ConfigDict(protected_namespaces=())

    model_name: str
    num_params: int | None = None
    max_context_length: int | None = None
    lora_info: dict[str, Any] = Field(default_factory=dict)
    served_by: str | None = None
    """the model that stands in for it here"""


class ModelInfo(Model):
    """A base model with its layers."""

    modules: tuple[str, ...] = ()
    parameters: dict[str, Any] | list[Any] = Field(default_factory=dict)


class StreamLine(Row):
    """One line of a streamed answer."""

    kind: str = "status"
    stage: str | None = None
    status: str | None = None
    message: str = ""
    level: str | None = None
    detail: dict[str, Any] | None = None


class ChatSession(Row):
    """A conversation with a deployment."""

    session_id: str
    created_at: str | None = None
    last_updated: str | None = None


class ChatMessage(Row):
    """One turn of a conversation."""

    role: str
    content: str


class Conversation(ChatSession):
    """A conversation with what was said."""

    messages: tuple[ChatMessage, ...] = ()


class Submitted(Row):
    """An experiment that was accepted."""

    experiment_name: str
    run_id: str | None = Field(default=None, alias="id")
    version: int | None = None
    status: str | None = None
    max_steps: int | None = None


LEFT = ("balance", "remaining", "remaining_credits", "credits")
"""Words for credits that are left; the published client shows whatever comes as "remaining account credits"."""


def balance_of(answer: Any) -> float | None:
    """What of an answer about credits is left: a number, or the one a known word stands for; None otherwise."""
    if isinstance(answer, (int, float)) and not isinstance(answer, bool):
        return float(answer)
    if not isinstance(answer, dict):
        return None
    named = [answer[word] for word in LEFT if word in answer]
    return balance_of(named[0]) if len(named) == 1 else None
