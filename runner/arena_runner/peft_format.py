"""The adapter format of peft: two files, so that transformers, vLLM and everybody else load what we train."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from arena_gitops.errors import ArenaError

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


class AdapterFormatError(ArenaError):
    """An adapter's files do not fit what they are loaded into."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What must be known beside the tensors."""

    rank: int
    alpha: float
    targets: tuple[str, ...]
    base: str
    base_digest: str


def tensor_names(module: str) -> tuple[str, str]:
    """Names of a module's A and B."""
    prefix = f"base_model.model.{module}"
    return f"{prefix}.lora_A.weight", f"{prefix}.lora_B.weight"


def save(folder: Path, tensors: Mapping[str, Tensor], config: AdapterConfig) -> None:
    """Write both files; the folder must be the caller's alone until this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), folder / WEIGHTS, metadata={"format": "pt", "base_digest": config.base_digest})
    _sort_metadata(folder / WEIGHTS)
    document = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": config.base,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "target_modules": list(config.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }
    (folder / CONFIG).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def read(folder: Path) -> tuple[dict[str, Tensor], AdapterConfig]:
    """Read an adapter written by us or by peft; refuses variants whose maths differ from plain LoRA."""
    try:
        raw = json.loads((folder / CONFIG).read_text())
        tensors = load_file(folder / WEIGHTS)
    except (OSError, ValueError) as error:
        raise AdapterFormatError(f"{folder} holds no readable adapter: {error}") from error
    odd = [
        k
        for k in ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save")
        if raw.get(k)
    ]
    if raw.get("peft_type") != "LORA" or raw.get("bias", "none") != "none" or odd:
        raise AdapterFormatError(
            f"{folder} is not a plain LoRA adapter ({', '.join(odd) or raw.get('peft_type')})"
        )
    with_digest = _metadata(folder / WEIGHTS).get("base_digest", "")
    targets = raw["target_modules"]
    config = AdapterConfig(
        rank=int(raw["r"]),
        alpha=float(raw["lora_alpha"]),
        targets=(targets,) if isinstance(targets, str) else tuple(sorted(targets)),
        base=str(raw.get("base_model_name_or_path") or ""),
        base_digest=with_digest,
    )
    return tensors, config


def check(tensors: Mapping[str, Tensor], sites: Mapping[str, tuple[slice, slice]], rank: int) -> None:
    """Raise AdapterFormatError unless the tensors are exactly those of `sites` at `rank`."""
    expected = {}
    for name, (a, b) in sites.items():
        name_a, name_b = tensor_names(name)
        expected[name_a] = (rank, a.stop - a.start)
        expected[name_b] = (b.stop - b.start, rank)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found == expected:
        return
    wrong = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
    first = wrong[0]
    raise AdapterFormatError(
        f"{len(wrong)} tensors do not fit, the first is {first}: "
        f"expected {expected.get(first, 'nothing')}, found {found.get(first, 'nothing')}"
    )


def digest(tensors: Mapping[str, Tensor], config: AdapterConfig) -> str:
    """sha256 over configuration and bytes, in name order; the same wherever the base model lies on disk."""
    known = asdict(replace(config, base=""))
    total = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    for name in sorted(tensors):
        total.update(name.encode() + b"\0")
        total.update(tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
    return "sha256:" + total.hexdigest()


def _sort_metadata(path: Path) -> None:
    """Give equal adapters equal bytes: safetensors writes metadata in the random order of a hash map."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
        assert len(text) == size, "the same header in another order has the same length"
        file.seek(8)
        file.write(text)


def _metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, dict[str, str]] = json.loads(file.read(size))
    return header.get("__metadata__", {})
