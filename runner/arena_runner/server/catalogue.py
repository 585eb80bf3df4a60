"""The base models of this machine: what their folders say, read without loading a weight."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_runner.server.refusals import RefusedError, not_found

HEADER_LIMIT = 100 * 2**20
"""More than any real header; a longer one is no safetensors file."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model folder."""

    name: str
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def parameters(self) -> int:
        """How many numbers its weights are."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def modules(self) -> list[str]:
        """The kinds of linear layers that an adapter can be put on."""
        layers = {name.removesuffix(".weight") for name, shape in self.shapes.items() if len(shape) == 2}
        return sorted({layer.rpartition(".")[2] for layer in layers if ".layers." in layer})

    @property
    def context(self) -> int | None:
        """The longest sequence it was made for."""
        value = self.config.get("max_position_embeddings")
        return value if isinstance(value, int) else None


def models(folder: Path) -> Iterator[Model]:
    """Every model of a models folder, by name."""
    for config in sorted(folder.rglob("config.json")) if folder.is_dir() else ():
        if any(config.parent.glob("*.safetensors")):
            yield _read(config.parent.relative_to(folder).as_posix(), config.parent)


def model(folder: Path, name: str) -> Model:
    """One model; 404 when it is not here."""
    found = next((one for one in models(folder) if one.name == name), None)
    if found is None:
        raise not_found(f"model {name!r}")
    return found


def _read(name: str, folder: Path) -> Model:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        shapes = {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in _shapes(file).items()}
    except (OSError, ValueError, KeyError, struct.error) as problem:
        raise RefusedError(500, "bad-model", f"model folder {name} cannot be read: {problem}") from problem
    return Model(name, config, shapes)


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The header of a safetensors file: its length in 8 bytes, then JSON."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > HEADER_LIMIT:
            raise ValueError(f"{file.name} is no safetensors file")
        header = json.loads(stream.read(length))
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
