"""Values that several kinds share: references, paths, durations, entry points; each with words for people."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from arena_gitops.spec.numbers import shown
from arena_gitops.spec.resource import NAME_PATTERN, Ref

REF_PATTERN = NAME_PATTERN[:-1] + r"(@(v[1-9][0-9]*|sha256:[0-9a-f]{64}))?$"
PATH_PATTERN = r"^[^/\\~][^\\]*$"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?[dhms])+$"
ENTRYPOINT_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
IDENTIFIER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
SECRET_NAME_PATTERN = r"^[A-Z_][A-Z0-9_]*$"  # noqa: S105 - a pattern of names, no secret
SECRET_PATTERN = r"^([A-Z_][A-Z0-9_]*|\$\{secret:[A-Z_][A-Z0-9_]*\})$"  # noqa: S105 - as above
CHECKPOINT_PATTERN = r"^(best|step_[1-9][0-9]*(/m[0-9]+)?|@[A-Za-z0-9][A-Za-z0-9_-]*)$"
REVISION_PATTERN = r"^[0-9a-f]{40}$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
DATA_FILE_PATTERN = r"^[^/\\~][^\\]*\.(csv|jsonl|parquet)$"
PYTHON_FILE_PATTERN = r"^[^/\\~][^\\]*\.py$"
OVERRIDE_PATTERN = r"^[a-z_]+(\.[A-Za-z0-9_]+)+$"
CHANGED_PATTERN = r"^[a-z_]+(\.[A-Za-z0-9_]+)*$"
VERSION_PATTERN = r"^[0-9]+(\.[0-9]+){0,2}[A-Za-z0-9.+]*$"

IN_WORDS: dict[str, str] = {
    NAME_PATTERN: "a name of lower case letters, digits and inner dashes, at most 63 characters",
    PATH_PATTERN: "a relative path with forward slashes",
    ENTRYPOINT_PATTERN: "module:Class",
    IDENTIFIER_PATTERN: "a Python identifier",
    SECRET_NAME_PATTERN: "the name of a secret, in capitals",
    CHECKPOINT_PATTERN: "best, step_N, step_N/mK or @alias",
    REVISION_PATTERN: "a commit of 40 hex digits, in quotes",
    DIGEST_PATTERN: "sha256: and 64 hex digits",
    DATA_FILE_PATTERN: "a relative path of a .csv, .jsonl or .parquet file",
    PYTHON_FILE_PATTERN: "a relative path of a .py file",
    OVERRIDE_PATTERN: "SECTION.FIELD",
    CHANGED_PATTERN: "FIELD or SECTION.FIELD",
    VERSION_PATTERN: "a version like 0.3 or 0.3.1, in quotes",
}
"""Pattern → what a message calls it."""

_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}


def read_ref(value: Any) -> Ref:
    """A reference as written in a document."""
    if isinstance(value, Ref):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected a name, name@vN or name@sha256:…, got {shown(value)}")  # noqa: TRY004 - pydantic collects ValueErrors only
    return Ref.parse(value)


def read_duration(value: Any) -> float:
    """Seconds of `6h`, `90m` or `1h30m`."""
    if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN, value):
        raise ValueError(f"expected a duration like 6h, 90m or 1h30m, got {shown(value)}")
    return sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"([0-9.]+)([dhms])", value))


def read_secret(value: Any) -> Any:
    """The name in `${secret:NAME}`; anything else as it is."""
    named = re.fullmatch(r"\$\{secret:(.*)\}", value) if isinstance(value, str) else None
    return named[1] if named else value


RefField = Annotated[
    Ref,
    PlainValidator(read_ref),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": REF_PATTERN}),
]
RepoPath = Annotated[str, Field(pattern=PATH_PATTERN)]
"""Relative to the file that names it. Whether it stays in the repository is `repo`'s to check."""
DataFile = Annotated[str, Field(pattern=DATA_FILE_PATTERN)]
PythonFile = Annotated[str, Field(pattern=PYTHON_FILE_PATTERN)]
Duration = Annotated[
    float,
    BeforeValidator(read_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]
"""Seconds; written `6h`."""
Entrypoint = Annotated[str, Field(pattern=ENTRYPOINT_PATTERN)]
Identifier = Annotated[str, Field(pattern=IDENTIFIER_PATTERN)]
SecretName = Annotated[
    str,
    Field(pattern=SECRET_NAME_PATTERN),
    BeforeValidator(read_secret),
    WithJsonSchema({"type": "string", "pattern": SECRET_PATTERN}),
]
"""Written `NAME` or `${secret:NAME}`."""
CheckpointText = Annotated[str, Field(pattern=CHECKPOINT_PATTERN)]
