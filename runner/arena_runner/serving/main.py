"""`arena-runner serve`: load one base model, say where it listens, serve until told to stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from arena_gitops.errors import UsageError

if TYPE_CHECKING:
    from arena_runner.serving.generator import Generator
    from arena_runner.serving.vllm_start import Wanted

TOKEN_ENV = "ARENA_MODEL_SERVER_TOKEN"  # noqa: S105 - a variable's name
SERVER_TOKEN = "ARENA_WORKER_TOKEN"  # noqa: S105 - as above


@click.command("serve")
@click.option("--model", help="Base model: folder, name in the models folder, or hub id.")
@click.option("--server", help="URL of a server: be one of its serving hosts, and run what it says.")
@click.option("--tier", help="With --server: the tier whose deployments are served here.")
@click.option(
    "--advertise", help="With --server: URL by which that reaches this host; default: where it listens."
)
@click.option(
    "--dial",
    is_flag=True,
    help="With --server, which cannot reach this host: be asked over connections opened from here.",
)
@click.option(
    "--token",
    "server_token",
    help=f"With --server; better kept out of the list of processes: in {SERVER_TOKEN}.",
)
@click.option(
    "--home", type=click.Path(path_type=Path), help="With --server: this host's folder; default $ARENA_HOME."
)
@click.option("--revision", help="Commit of a hub model.")
@click.option(
    "--models-dir", type=click.Path(file_okay=False, path_type=Path), help="Default: $ARENA_MODELS_DIR."
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=0, show_default=True, help="0 takes a free one.")
@click.option(
    "--token-env", default=TOKEN_ENV, show_default=True, help="Variable that holds the bearer token."
)
@click.option("--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="Written once it serves.")
@click.option("--threads", default=1, show_default=True, help="CPU threads of torch.")
@click.option("--rows", default=32, show_default=True, help="Completions generated at the same time.")
@click.option(
    "--engine",
    type=click.Choice(["torch", "vllm"]),
    default="torch",
    show_default=True,
    help="vllm: by a vLLM beside this process ($ARENA_VLLM_PYTHON).",
)
@click.option("--adapters", default=8, show_default=True, help="vLLM: adapters computed with at a time.")
@click.option("--max-rank", default=64, show_default=True, help="vLLM: the largest rank of an adapter.")
@click.option("--device", help="cpu, cuda, cuda:1 …; default: cuda where there is one.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), help="Default: what the device computes best."
)
def command(
    *,
    model: str | None,
    server: str | None,
    tier: str | None,
    advertise: str | None,
    dial: bool,
    server_token: str | None,
    home: Path | None,
    revision: str | None,
    models_dir: Path | None,
    host: str,
    port: int,
    token_env: str,
    ready_file: Path | None,
    threads: int,
    rows: int,
    engine: str,
    adapters: int,
    max_rank: int,
    device: str | None,
    dtype: str | None,
) -> None:
    """Serve one base model and the adapters that are loaded while it runs; or whatever a server says, as its host."""
    if server is not None:
        options = {"--threads": threads, "--rows": rows, "--device": device, "--dtype": dtype}
        options |= {"--adapters": adapters, "--max-rank": max_rank}
        listener = bound(host, port)
        url = _reached_by(listener, advertise, dial=dial)
        _be_host(server, server_token, tier, home, (url, listener), _passed_on(options))
        return
    if model is None:
        raise UsageError("give --model to serve one base model, or --server to be a serving host of a server")
    token = os.environ.pop(token_env, "")
    if not token:
        raise UsageError(f"${token_env} is empty: a model server never runs without a token")
    listener = bound(host, port)  # before the model is loaded: a taken port fails at once

    import torch

    torch.set_num_threads(threads)
    if engine == "vllm":
        from arena_runner.serving.vllm_start import Wanted

        wanted = Wanted(model, models_dir, revision, dtype, rows, adapters, max_rank)
        _beside_a_vllm(wanted, token, listener, ready_file)
        return

    from arena_runner.models import load_base
    from arena_runner.serving.scheduler import Scheduler

    kind = getattr(torch, dtype) if dtype else None
    base = load_base(model, models_dir=models_dir, revision=revision, device=device, dtype=kind)
    scheduler = Scheduler(base, rows=rows)
    scheduler.start()
    try:
        run(scheduler, token, listener, ready_file, model)
    finally:
        scheduler.stop()


def _beside_a_vllm(wanted: Wanted, token: str, listener: socket.socket, ready_file: Path | None) -> None:
    from arena_runner.serving.vllm_start import vllm_generator

    # the signal that ends uvicorn is raised once more after it: as an exception it ends the vLLM too
    signal.signal(signal.SIGTERM, _go)
    with vllm_generator(wanted) as generator:
        generator.watch(lambda: os.kill(os.getpid(), signal.SIGTERM))
        run(generator, token, listener, ready_file, wanted.model)


def _go(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _passed_on(options: Mapping[str, object]) -> tuple[str, ...]:
    """What the model servers that a host starts are given of its own options."""
    return tuple(text for name, value in options.items() if value for text in (name, str(value)))


def _reached_by(listener: socket.socket, advertise: str | None, *, dial: bool) -> str | None:
    """The URL by which the server reaches this host; None where the host dials."""
    if dial:
        if advertise is not None:
            raise UsageError("--dial is for a host without an address, and --advertise names one")
        return None
    name, port = listener.getsockname()[:2]
    here = f"http://{f'[{name}]' if ':' in name else name}:{port}"
    return (advertise or here).rstrip("/")


def _be_host(  # noqa: PLR0917 - one call, one place
    server: str,
    given: str | None,
    tier: str | None,
    home: Path | None,
    door: tuple[str | None, socket.socket],
    options: tuple[str, ...],
) -> None:
    """Run what the server says until told to go."""
    from arena_runner import logs
    from arena_runner.leaving import Leaving
    from arena_runner.server.home import Home
    from arena_runner.server_link import ServerLink
    from arena_runner.serving.host import Post, serve_for

    token = given or os.environ.pop(SERVER_TOKEN, "")
    if not token:
        raise UsageError(
            f"no token: set {SERVER_TOKEN} to one of role worker, made by arena-runner token create"
        )
    if tier is None:
        raise UsageError("--server needs --tier: whose deployments are served here")
    logs.configure("text", sys.stdout)
    place = Home.find(home)
    place.prepare()
    url, listener = door
    link, leaving = ServerLink(server, token), Leaving(0.0)
    try:
        with leaving.on_signals():
            serve_for(link, Post(place, tier, url, options), listener, leaving)
    finally:
        link.close()


def run(
    generator: Generator, token: str, listener: socket.socket, ready_file: Path | None, model: str
) -> None:
    """Serve until told to stop."""
    import uvicorn

    from arena_runner.server.life import TURN_S
    from arena_runner.serving.app import create_app

    sys.setswitchinterval(TURN_S)
    app = create_app(generator, token)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=10))
    listener.listen()  # until now nobody could connect, so nobody waits for a model that is being loaded
    if ready_file is not None:
        announce(ready_file, listener, model)
    server.run(sockets=[listener])


def bound(host: str, port: int) -> socket.socket:
    """A socket that has its address but does not listen yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol said, asyncio sends small answers at once; without, each waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def announce(path: Path, listener: socket.socket, model: str) -> None:
    """Say where we listen; the socket accepts already, so whoever reads this may connect."""
    host, port = listener.getsockname()[:2]
    document = {
        "pid": os.getpid(),
        "host": host,
        "port": port,
        "url": f"http://{host}:{port}",
        "model": model,
    }
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(document))
    part.replace(path)
