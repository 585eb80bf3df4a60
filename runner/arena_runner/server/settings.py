"""Server settings (`settings.yaml`) and tiers (`tiers.yaml`), both optional files in the server's home."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal, TypeVar

import psutil
from pydantic import Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from arena_gitops.errors import UsageError
from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.wire import Tier

DEFAULT_TIER = "local"
_T = TypeVar("_T", bound=Frozen)


class Limits(Frozen):
    """Ceilings on every job, whatever its manifest says."""

    max_steps: int | None = Field(default=None, gt=0)


class Models(Frozen):
    """Base models exchanged for others, so that a small machine can run a big manifest unedited."""

    map: dict[str, str] = Field(default_factory=dict)


class Hub(Frozen):
    """Where datasets are searched and read."""

    endpoint: str | None = None
    """default: the variable HF_ENDPOINT, else huggingface.co"""
    wait_s: float = Field(default=60.0, ge=0)
    """how long a submission waits for rows that are on their way"""


class Process(Frozen):
    """How a program is started; the default is this installation's `arena-runner`."""

    command: tuple[str, ...] = ()


class Workers(Process):
    """The workers of this server."""

    lease_s: float = Field(default=60.0, gt=0)
    """a worker that was silent for longer has lost its job"""


class ModelServers(Process):
    """The model servers of this machine, and what one deployment may be asked at a time."""

    engine: Literal["torch", "vllm"] = "torch"
    """vllm: by the interpreter that ARENA_VLLM_PYTHON names in the server's environment"""
    concurrent: int = Field(default=64, ge=1)
    queue: int = Field(default=256, ge=0)


class Settings(Frozen):
    """`settings.yaml`."""

    database: str | None = Field(default=None, repr=False)
    """address of a PostgreSQL database; default: an SQLite file in the home"""
    limits: Limits = Limits()
    models: Models = Models()
    public_url: str | None = Field(default=None, pattern=r"^https?://[^/?#]+$")
    """the address by which people reach this server, when that is not the one it listens on"""
    log_format: Literal["text", "json"] = "text"
    """of the server's own lines; `--log-format` and ARENA_LOG_FORMAT go before it"""
    hub: Hub = Hub()
    worker: Workers = Workers()
    model_server: ModelServers = ModelServers()


class TierFile(Frozen):
    """`tiers.yaml`: tiers, the first being the default, and names that mean another tier here."""

    tiers: tuple[Tier, ...] = Field(min_length=1)
    map: dict[str, str] = Field(default_factory=dict)


def load_settings(path: Path) -> Settings:
    """Read the settings; the defaults when there is no file."""
    return _parse(path, Settings) if path.exists() else Settings()


def load_tiers(path: Path) -> TierFile:
    """Read the tiers; one tier that describes this machine when there is no file."""
    return _parse(path, TierFile) if path.exists() else TierFile(tiers=(this_machine(),))


def this_machine() -> Tier:
    """The machine the server runs on, as a free tier with one slot."""
    gpus = _gpus()
    return Tier(
        id=DEFAULT_TIER,
        gpu_type=gpus[0] if gpus else None,
        num_gpus=len(gpus),
        num_cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        ram_gb=round(psutil.virtual_memory().total / 2**30, 1),
        credits_per_node_hour=0.0,
    )


def resolve_tier(wanted: str | None, file: TierFile) -> tuple[Tier, str | None]:
    """The tier a name means here, and a warning when it is not the one that was named."""
    known = {t.id: t for t in file.tiers}
    if wanted is None or wanted in known:
        return known.get(wanted or "", file.tiers[0]), None
    chosen = known.get(file.map.get(wanted, ""), file.tiers[0])
    return chosen, f"tier {wanted!r} is not one of this server's ({', '.join(known)}); using {chosen.id!r}"


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    return (
        [line.strip() for line in answer.stdout.splitlines() if line.strip()] if not answer.returncode else []
    )


def _parse(path: Path, model: type[_T]) -> _T:
    try:
        document: Any = YAML(typ="safe").load(path.read_text("utf-8"))
        return model.model_validate(document or {})
    except (YAMLError, ValidationError) as problem:
        raise UsageError(f"{path}: {problem}") from problem
