"""What a person may ask of MLflow through our login. Pure.

Reading is for viewers. Editors choose (aliases) and label (tags). Everything else is refused to everybody: runs,
metrics, models and versions are written by the server alone, so that what MLflow shows is what was trained.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from arena_runner.server.registry import BEST, SERVING

_API = r"(ajax-)?api/[23]\.0/mlflow"
_TO_ITSELF = r"(?!gateway/secrets|webhooks|mcp-servers|workspaces)"
"""Routes of which even a GET reaches beyond what was tracked: other hosts, keys."""


class Need(StrEnum):
    """What a request needs."""

    READ = "read"
    ALIAS = "alias"
    LABEL = "label"
    NEVER = "never"


_RULES: tuple[tuple[str, str, Need], ...] = (
    ("GET", r"", Need.READ),
    ("GET", r"(static-files|build)/.+", Need.READ),
    ("GET", r"version|health|get-artifact|model-versions/get-artifact", Need.READ),
    ("GET", rf"{_API}/{_TO_ITSELF}.+", Need.READ),
    ("GET", rf"{_API}-artifacts/artifacts(/.+)?", Need.READ),
    ("POST", r"graphql", Need.READ),
    ("POST", rf"{_API}/(runs|experiments|logged-models|traces|datasets|issues)/search", Need.READ),
    ("POST", rf"{_API}/experiments/search-datasets", Need.READ),
    ("POST", rf"{_API}/registered-models/get-latest-versions", Need.READ),
    ("POST", rf"{_API}/traces/(batchGetInfos|metrics|calculate-filter-correlation)", Need.READ),
    ("POST", rf"{_API}/prompt-optimization/jobs/search", Need.READ),
    ("POST|DELETE", rf"{_API}/registered-models/alias", Need.ALIAS),
    ("POST", rf"{_API}/(registered-models|model-versions|runs)/set-tag", Need.LABEL),
    ("POST", rf"{_API}/experiments/(set|delete)-experiment-tag", Need.LABEL),
    ("POST", rf"{_API}/runs/delete-tag", Need.LABEL),
    ("DELETE", rf"{_API}/(registered-models|model-versions)/delete-tag", Need.LABEL),
)
_COMPILED = tuple((re.compile(methods), re.compile(path), need) for methods, path, need in _RULES)

OURS = frozenset({BEST, SERVING})
"""Aliases that the platform keeps."""

_OUR_TAGS = re.compile(
    r"arena\..*|step|member|generation|fitness|run_version|checkpoint|digest"
    r"|mlflow\.(?!note\.content$|runColor$).*"
)
"""Tags by which the server finds its own runs and versions again, and those that MLflow acts on."""


def need(method: str, path: str) -> Need:
    """What a request needs; `path` is decoded and has no leading slash. Unknown means never."""
    if any(part in {".", ".."} for part in path.split("/")) or "//" in path:
        return Need.NEVER
    asked = "GET" if method == "HEAD" else method
    found = (n for methods, route, n in _COMPILED if methods.fullmatch(asked) and route.fullmatch(path))
    return next(found, Need.NEVER)


def label_problem(body: Mapping[str, Any]) -> str | None:
    """Why a tag may not be set or removed; None when it may."""
    key = body.get("key")
    if not isinstance(key, str) or not key:
        return "the request names no tag"
    return f"tag {key} is kept by the server" if _OUR_TAGS.fullmatch(key) else None


def alias_problem(body: Mapping[str, Any]) -> str | None:
    """Why an alias may not be moved; None when it may."""
    names = [body.get("name"), body.get("alias")]
    if not all(isinstance(name, str) and name for name in names):
        return "the request names no model and alias"
    return f"alias {body['alias']} is kept by the server; choose another" if body["alias"] in OURS else None


def only_asks(query: str) -> bool:
    """Whether a GraphQL document has queries only, and can be read at all."""
    from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse

    try:
        document = parse(query, max_tokens=5000)
    except GraphQLError:
        return False
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    return bool(operations) and all(node.operation is OperationType.QUERY for node in operations)
