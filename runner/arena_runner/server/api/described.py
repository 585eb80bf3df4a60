"""The published description of the API: `/openapi.json`, and its copy in `schemas/`.

FastAPI knows routes, parameters and answers. Added here, from the same objects that act on requests: who may call a
route (its `RoleCheck`), how a caller proves who it is, and the shape of every refusal, which is the same for each
family of routes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from arena_gitops.spec.wire import REQUEST_ID, ErrorBody
from arena_runner.server import browser
from arena_runner.server.api.door import RoleCheck
from arena_runner.server.world import VERSION

TAGS = {
    "native": "What `arena plan` and `arena apply` speak: declarative, idempotent.",
    "blobs": "Content-addressed files.",
    "workers": "The pull protocol of workers.",
    "leases": "One apply of a stack at a time.",
    "secrets": "Names of secrets; their values are never told.",
    "health": "What machines ask.",
    "arena": "The published client's protocol.",
    "inference": "The published client's inference protocol.",
    "openai": "The inference protocol of OpenAI's clients.",
    "login": "Device logins, at the paths of the published client.",
}
ABOUT = (
    "Every answer carries `X-Request-Id`, the caller's own if it was a plain word of at most 64 characters. "
    "Every refusal is a JSON object: a stable code for programs, a text for people."
)
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `arena-runner token create`."},
    "browser": {
        "type": "apiKey",
        "in": "cookie",
        "name": browser.COOKIE,
        "description": f"The session of `/login`; what changes something also needs `{browser.CSRF_HEADER}`.",
    },
}


class ArenaRefusal(BaseModel):
    """A refusal as the published client reads it."""

    detail: str
    error_code: str


class OpenAiRefusal(BaseModel):
    """A refusal as OpenAI's clients read it."""

    error: dict[str, Any]


class LoginRefusal(BaseModel):
    """A refusal as OAuth has it."""

    error: str
    error_description: str = ""


REFUSALS: dict[str, type[BaseModel]] = {
    "arena": ArenaRefusal,
    "openai": OpenAiRefusal,
    "login": LoginRefusal,
}
"""by tag; all others: `ErrorBody`"""


class Ndjson(StreamingResponse):
    """One JSON document a line, as they come."""

    media_type = "application/x-ndjson"


def header(name: str, text: str) -> dict[str, Any]:
    """An optional header, for `openapi_extra`."""
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": text,
        "schema": {"type": "string"},
    }


class Described(FastAPI):
    """An app whose description is complete."""

    def __init__(self) -> None:
        super().__init__(
            title="arena-gitops",
            version=VERSION,
            description=ABOUT,
            openapi_url="/openapi.json",
            redoc_url=None,
            openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
            generate_unique_id_function=_name,
        )

    def openapi(self) -> dict[str, Any]:
        """The document; made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            _complete(document, {_name(route): route for route in _routes(self.routes)})
            self.openapi_schema = document
        return self.openapi_schema


def _name(route: APIRoute) -> str:
    """Stable and readable, as clients are generated from it."""
    return re.sub(r"\W+", "_", f"{min(route.methods or {''}).lower()}{route.path}").strip("_")


def _routes(routes: list[Any]) -> Iterator[APIRoute]:
    """Every API route, also those of included routers."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _routes(inner.routes)
        elif isinstance(route, APIRoute):
            yield route


def _complete(document: dict[str, Any], routes: dict[str, APIRoute]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    refusals: list[type[BaseModel]] = [ErrorBody, *REFUSALS.values()]
    for model in refusals:
        schemas[model.__name__] = model.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = SCHEMES
    for operations in document["paths"].values():
        for operation in operations.values():
            _explain(operation, routes[operation["operationId"]])


def _explain(operation: dict[str, Any], route: APIRoute) -> None:
    roles = sorted({role.value for check in _checks(route.dependant) for role in check.roles})
    operation["security"] = [{name: []} for name in SCHEMES] if roles else []
    if roles:
        operation["description"] = (
            f"{operation.get('description', '')}\n\nRole: {' or '.join(roles)}.".strip()
        )
        operation["x-roles"] = roles
    answers = operation["responses"]
    if "HTTPValidationError" in json.dumps(answers.get("422", "")):
        del answers["422"]
    refusal = REFUSALS.get(operation["tags"][0], ErrorBody)
    shape = {"schema": {"$ref": f"#/components/schemas/{refusal.__name__}"}}
    answers["default"] = {"description": "Refused", "content": {"application/json": shape}}
    for answer in answers.values():
        answer.setdefault("headers", {})[REQUEST_ID] = {"schema": {"type": "string"}}


def _checks(dependant: Dependant) -> Iterator[RoleCheck]:
    if isinstance(dependant.call, RoleCheck):
        yield dependant.call
    for part in dependant.dependencies:
        yield from _checks(part)


@click.command("openapi")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
def command(file: Path | None) -> None:
    """Print the API's description as OpenAPI, or write it to FILE."""
    from arena_runner.server.app import create_app

    text = json.dumps(create_app(None).openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    if file is None:
        click.echo(text, nl=False)
    else:
        file.write_text(text, encoding="utf-8")
