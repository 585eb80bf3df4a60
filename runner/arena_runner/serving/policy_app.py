"""`arena-runner serve-policies`: every deployed policy in one process; the table of calls is in `policy_protocol`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any

import click
import torch
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse

from arena_gitops.errors import ArenaError, UsageError
from arena_runner.serving.app import refuses
from arena_runner.serving.arrays import WireError
from arena_runner.serving.main import TOKEN_ENV, announce, bound
from arena_runner.serving.observed import ObservationError
from arena_runner.serving.policy import Policy
from arena_runner.serving.policy_door import PolicyDoor
from arena_runner.serving.policy_files import read_policy
from arena_runner.serving.policy_protocol import POLICIES, POLICY_FILES, Acted, LoadPolicy, Probe
from arena_runner.serving.protocol import FileAt
from arena_runner.serving.shelf import UnfitAdapterError, UnknownAdapterError

STATUS: dict[type[ArenaError], tuple[int, str]] = {
    UnknownAdapterError: (404, "unknown-policy"),
    UnfitAdapterError: (422, "unfit-policy"),
    ObservationError: (422, "bad-observation"),
    WireError: (422, "bad-array"),
}

router = APIRouter()


class Rack:
    """Policies by name; a name's meaning never changes."""

    def __init__(self) -> None:
        self.policies: dict[str, tuple[dict[str, FileAt], Policy]] = {}

    def get(self, name: str) -> Policy:
        """The policy of this name."""
        if name not in self.policies:
            raise UnknownAdapterError(f"policy {name} is not loaded")
        return self.policies[name][1]


def _rack(request: Request) -> Rack:
    found = request.app.state.rack
    assert isinstance(found, Rack)
    return found


TheRack = Annotated[Rack, Depends(_rack)]


def create_app(token: str) -> PolicyDoor:
    """An app without any policy yet."""
    app = FastAPI(title="arena-runner policy server", redoc_url=None)
    rack = app.state.rack = Rack()
    app.include_router(router)
    refuses(app, token, STATUS)
    return PolicyDoor(app, act=lambda asked: rack.get(asked.adapter).act(asked), token=token, refusals=STATUS)


@router.get("/healthz")
def health() -> dict[str, Any]:
    """It answers."""
    return {"ok": True}


@router.get("/adapters")
def policies(rack: TheRack) -> list[dict[str, str]]:
    """What may be asked."""
    return [{"name": name} for name in list(rack.policies)]


@router.post("/adapters")
def load(rack: TheRack, body: LoadPolicy) -> Response:
    """Load a policy while others act; it has acted once before it is there."""
    known = rack.policies.get(body.name)
    if known is not None and known[0] != body.files:
        text = f"{body.name} is loaded from other files; a name's meaning never changes"
        return JSONResponse({"code": "name-taken", "message": text}, status_code=409)
    if known is None:
        lacking = [name for name in POLICY_FILES if name not in body.files]
        if lacking:
            raise UnfitAdapterError(f"{body.name} has no {' and no '.join(lacking)}")
        weights, spec = (_read(name, body.files[name]) for name in POLICY_FILES)
        try:
            policy = Policy(read_policy(weights, spec))
        except ArenaError as problem:
            raise UnfitAdapterError(str(problem)) from problem
        rack.policies[body.name] = (body.files, policy)
    return JSONResponse({"name": body.name}, status_code=200 if known else 201)


@router.delete("/adapters/{name:path}")
def unload(rack: TheRack, name: str) -> Response:
    """Let a policy go; who is being answered by it still is."""
    if rack.policies.pop(name, None) is None:
        raise UnknownAdapterError(f"policy {name} is not loaded")
    return Response(status_code=204)


@router.post("/probe")
def probe(rack: TheRack, body: Probe) -> Acted:
    """One real action."""
    return rack.get(body.adapter).probe()


def _read(name: str, file: FileAt) -> bytes:
    """The bytes of a file, if they are those that were trained."""
    try:
        raw = Path(file.path).read_bytes()
    except OSError as problem:
        raise UnfitAdapterError(f"{name} cannot be read: {problem.strerror}") from problem
    found = "sha256:" + hashlib.sha256(raw).hexdigest()
    if file.digest is not None and found != file.digest:
        raise UnfitAdapterError(f"{name} has digest {found}; expected {file.digest}")
    return raw


@click.command("serve-policies")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=0, show_default=True, help="0 takes a free one.")
@click.option(
    "--token-env", default=TOKEN_ENV, show_default=True, help="Variable that holds the bearer token."
)
@click.option("--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="Written once it serves.")
def command(*, host: str, port: int, token_env: str, ready_file: Path | None) -> None:
    """Serve policies that are loaded while it runs, on one CPU thread."""
    token = os.environ.pop(token_env, "")
    if not token:
        raise UsageError(f"${token_env} is empty: a policy server never runs without a token")
    listener = bound(host, port)
    torch.set_num_threads(1)
    listener.listen()
    if ready_file is not None:
        announce(ready_file, listener, POLICIES)
    config = uvicorn.Config(
        create_app(token),
        log_level="warning",
        timeout_graceful_shutdown=10,
        # what costs every request and nobody here asks for
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])
