"""An environment as it is sent: an archive, a requirements file and a configuration, made into one input of jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from arena_gitops.spec.entrypoints import entrypoints, module_of
from arena_gitops.spec.fields import ENTRYPOINT_PATTERN
from arena_gitops.spec.job import EnvironmentInput
from arena_runner.sandbox.unpack import without_top
from arena_runner.server.archives import unpack
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import imperative

REQUIREMENTS = "requirements.txt"
CONFIGS = ("env_config.yaml", "env_config.yml", "env_config.json")
SOURCE_LIMIT = 4 << 20
"""Of a Python file that is read for its classes."""


class AmbiguousEntrypointError(RefusedError):
    """Several classes could be meant."""

    def __init__(self, found: list[str]) -> None:
        self.available = found
        message = f"{len(found)} environments are in it and none was chosen"
        super().__init__(422, "AMBIGUOUS_ENTRYPOINT", message)


@dataclass(frozen=True, slots=True)
class Sent:
    """The parts as they came in; empty bytes for what was not given."""

    name: str
    archive: IO[bytes]
    config: bytes = b""
    requirements: bytes = b""
    entrypoint: str | None = None
    multi_agent: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """What becomes of them, and what was left out."""

    source: EnvironmentInput
    left_out: tuple[str, ...] = field(default=())


def accept(blobs: BlobStore, sent: Sent) -> Accepted:
    """Unpack, read the configuration and choose the entry point; 422 with what is wrong, and nothing is kept."""
    unpacked = unpack(blobs, sent.archive)
    files = without_top(unpacked.files)
    requirements = _taken(blobs, files, (REQUIREMENTS,), sent.requirements)
    config = _taken(blobs, files, CONFIGS, sent.config)
    source = EnvironmentInput(
        address=f"environment/{imperative.slug(sent.name)}",
        files=files,
        entrypoint=chosen(files, found(blobs, files), sent.entrypoint),
        multi_agent=sent.multi_agent,
        requirements=_requirements(requirements),
        env_config=_config(config),
    )
    return Accepted(source, unpacked.left_out)


def found(blobs: BlobStore, files: Mapping[str, str]) -> list[str]:
    """The entry points there are."""
    paths = {name: blobs.existing(digest) for name, digest in files.items() if name.endswith(".py")}
    small = {name: path for name, path in paths.items() if path.stat().st_size <= SOURCE_LIMIT}
    return entrypoints({name: path.read_text("utf-8", "replace") for name, path in small.items()})


def chosen(files: Mapping[str, str], there: list[str], wanted: str | None) -> str:
    """The entry point that is meant: the one named, in full or by its class, or the only one."""
    if wanted is None:
        if not there:
            message = (
                "there is no environment in it: expected a class that derives from gymnasium.Env or a PettingZoo "
                "class, or that defines reset and step; name another with --entrypoint module:Class"
            )
            raise RefusedError(422, "no-entrypoint", message)
        if len(there) > 1:
            raise AmbiguousEntrypointError(there)
        return there[0]
    if ":" not in wanted and (named := [one for one in there if one.partition(":")[2] == wanted]):
        return named[0]
    modules = {module_of(name) for name in files if name.endswith(".py")}
    if not re.fullmatch(ENTRYPOINT_PATTERN, wanted) or wanted.partition(":")[0] not in modules:
        known = ", ".join(there) or "none"
        message = f"{wanted!r} is no entry point of it: expected module:Class; found: {known}"
        raise RefusedError(422, "no-entrypoint", message)
    return wanted


def _taken(blobs: BlobStore, files: dict[str, str], names: tuple[str, ...], sent: bytes) -> bytes:
    """A file that travels as a value; it is no part of the code then, also where clients send it both ways."""
    name = next((name for name in names if name in files), None)
    if name is None:
        return sent
    inside = blobs.existing(files[name]).read_bytes()
    if sent and inside != sent:
        return sent
    del files[name]
    return inside


def _requirements(text: bytes) -> tuple[str, ...]:
    lines = [line.partition(" #")[0].strip() for line in text.decode("utf-8", "replace").splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    odd = [line for line in wanted if line.startswith("-") or "://" in line or "@" in line or "/" in line]
    if odd:
        message = f"{REQUIREMENTS}: {odd[0]!r} is not understood: expected packages of an index, one a line"
        raise RefusedError(422, "bad-requirements", message)
    return tuple(wanted)


def _config(text: bytes) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = YAML(typ="safe").load(text.decode())  # JSON is YAML
    except (YAMLError, UnicodeDecodeError) as problem:
        raise RefusedError(422, "bad-env-config", f"env_config: {problem}") from problem
    if not isinstance(value, dict):
        raise RefusedError(422, "bad-env-config", "env_config: expected a mapping of arguments to values")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(value))
    except TypeError as problem:
        raise RefusedError(422, "bad-env-config", f"env_config: {problem}") from problem
    return plain
