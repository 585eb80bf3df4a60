"""What a job reads, by digest: dataset, reward, environment, start weights. The first part of the wire (`spec.job`)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.numbers import Float
from arena_gitops.spec.resource import Frozen, Name

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class DatasetCategory(StrEnum):
    """What the rows hold, and so which algorithms can train on them."""

    REASONING = "reasoning"
    """columns question, answer: GRPO and its family"""
    PREFERENCE = "preference"
    """columns prompt, chosen, rejected: DPO"""
    SFT = "sft"
    """columns prompt, target: SFT"""


COLUMNS: dict[DatasetCategory, tuple[str, ...]] = {
    DatasetCategory.REASONING: ("question", "answer"),
    DatasetCategory.PREFERENCE: ("prompt", "chosen", "rejected"),
    DatasetCategory.SFT: ("prompt", "target"),
}
"""Keys every column mapping of a category must have."""


class HubDataset(Frozen):
    """A dataset on the Hugging Face hub; `revision` absent means floating."""

    id: str
    config: str | None = None
    split: str = "train"
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None


class DatasetInput(Frozen):
    """The dataset of a job: a file by digest, or rows on the hub."""

    address: str
    category: DatasetCategory
    column_mapping: dict[str, str]
    """role (`question`) → column of the file"""
    digest: Digest | None = None
    format: Literal["csv", "jsonl", "parquet"] | None = None
    hf: HubDataset | None = None


class RewardCase(Frozen):
    """A sample with the score its author expects."""

    question: str
    answer: str
    completion: str
    expect: Float


class RewardInput(Frozen):
    """The reward of a job: its file and every repo-local file it imports, by digest."""

    address: str
    files: dict[str, Digest]
    """POSIX path relative to the repository root → digest"""
    entry: str
    """the file (a key of `files`) that defines `function`"""
    function: str = "reward"
    requirements: tuple[str, ...] = ()
    network: Literal["none", "full"] = "none"
    secrets: tuple[str, ...] = ()
    cases: tuple[RewardCase, ...] = ()


PETTINGZOO = re.compile(r"(?:mpe2|pettingzoo\.[a-z]+)\.[a-z0-9_]+_v[0-9]+")
"""names of PettingZoo's games, which are modules; nothing else is imported by its name"""


class EnvironmentInput(Frozen):
    """The environment of a job: an archive of files by digest, or a name of Gymnasium's or PettingZoo's."""

    address: str | None = None
    gym_id: str | None = None
    files: dict[str, Digest] = Field(default_factory=dict)
    entrypoint: str | None = None
    multi_agent: bool = False
    requirements: tuple[str, ...] = ()
    env_config: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def content(self) -> Digest:
        """What it is, whatever it is called."""
        return sha256_json(self.model_dump(mode="json", exclude={"address"}))


class EnvironmentProfile(Frozen):
    """What one environment costs, as a platform has measured it on random steps in one process."""

    content: Digest
    """of the environment"""
    steps_per_second: float
    avg_cpu_per_env: float
    """percent of a processor while it steps"""
    peak_cpu_per_env: float
    memory_per_env_gb: float


class BaseInput(Frozen):
    """Start weights: a checkpoint of another experiment's run."""

    experiment: Name
    checkpoint: str = "best"
    merge: bool = False
    files: dict[str, Digest] = Field(default_factory=dict)
    """the adapter's files, filled by the server once the base run has ended"""


class JobInputs(Frozen):
    """Everything a job reads, by digest."""

    dataset: DatasetInput | None = None
    reward: RewardInput | None = None
    environment: EnvironmentInput | None = None
    base: BaseInput | None = None
