"""`arena-runner server`: build the world, start the controllers, answer HTTP, and stop in good order.

Stopping (SIGTERM, SIGINT): withdraw the announcement, take and hand out nothing new, let workers save while the API
still answers them, let requests in flight end, then end controllers, model servers and MLflow. A second signal ends at
once, and so does the time.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from arena_gitops.errors import ArenaError
from arena_runner import logs
from arena_runner.server import life
from arena_runner.server.app import create_app
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.auth import issue_embedded
from arena_runner.server.faults import fault_of
from arena_runner.server.home import Home
from arena_runner.server.plant import Plant
from arena_runner.server.services import resources, secrets
from arena_runner.server.settings import load_settings, load_tiers
from arena_runner.server.store.address import VARIABLE, database_of
from arena_runner.server.store.database import Store
from arena_runner.server.world import VERSION, World

GRACE_S = 10
"""What requests in flight have, once the workers have saved; then they are ended in words (`api.parting`)."""
BOUND_S = 55.0
"""From the signal to the end of the process, whatever hangs; a kill by then loses nothing either."""

log = logging.getLogger(__name__)


@click.command("server")
@click.option("--home", type=click.Path(path_type=Path), help="Folder of this server; default $ARENA_HOME.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="Port; 0: the one used last, else a free one.")
@click.option(
    "--mlflow-uri", envvar="ARENA_MLFLOW_URI", help="An MLflow that runs already; default: start one."
)
@click.option("--database", help=f"Address of a PostgreSQL database; better in {VARIABLE}. Default: SQLite.")
@logs.option
def command(  # noqa: PLR0917 - click passes them by name
    home: Path | None,
    host: str,
    port: int,
    mlflow_uri: str | None,
    database: str | None,
    log_format: logs.Form | None,
) -> None:
    """Run the control plane of one home."""
    try:
        logs.configure(log_format or load_settings(Home.find(home).settings).log_format)
        serve(Home.find(home), host, port, mlflow_uri, database)
    except ArenaError as problem:
        click.echo(f"error: {problem}", err=True)
        raise SystemExit(problem.exit_code) from problem
    except (OSError, SQLAlchemyError) as problem:
        fault = fault_of(problem)
        if fault is None:
            raise
        click.echo(f"error: {Home.find(home).root}: {fault.message}", err=True)
        raise SystemExit(1) from problem


def serve(home: Home, host: str, port: int, mlflow_uri: str | None, database: str | None = None) -> None:
    """Run until told to stop."""
    sys.setswitchinterval(life.TURN_S)
    home.prepare()
    with life.only_server(home), _only_server(home, database) as world:
        previous = life.remembered(home)
        token = issue_embedded(world, previous.token if previous else None)
        resources.forget_old_answers(world)
        secrets.renew(world)
        listener = life.listen(host, port, previous.port if previous else None)
        bound = listener.getsockname()[1]
        world.links.server = f"http://{_reachable(host)}:{bound}"
        plant = Plant(world, mlflow_uri)
        config = uvicorn.Config(
            create_app(world),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=75,
        )
        http = _Http(config, plant, lambda: life.announce(home, port=bound, token=token, version=VERSION))
        try:
            http.run(sockets=[listener])
        finally:
            plant.close()
    log.info("stopped")


def _reachable(host: str) -> str:
    """The address by which workers of this machine reach a server that listens on `host`."""
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared with, not listened on
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def open_world(home: Home, database: str | None = None) -> World:
    """Settings, database (migrated) and blobs of a home."""
    world = _world(home, database)
    world.store.migrate()
    return world


@contextmanager
def _only_server(home: Home, database: str | None) -> Iterator[World]:
    """The world of a home while no other server uses its database."""
    world = _world(home, database)
    try:
        with world.store.only_server():
            world.store.migrate()
            yield world
    finally:
        world.store.close()


def _world(home: Home, database: str | None) -> World:
    settings = load_settings(home.settings)
    return World(
        home=home,
        store=Store(database_of(home, settings, database)),
        blobs=BlobStore(home.blobs),
        settings=settings,
        tiers=load_tiers(home.tiers),
    )


class _Http(uvicorn.Server):
    """Announces itself once it accepts connections, and drains before it closes."""

    def __init__(self, config: uvicorn.Config, plant: Plant, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._plant, self._announce = plant, announce
        self._drain: threading.Thread | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._plant.start()
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drain is not None:
            self.force_exit = self.should_exit = True
            return
        self._drain = threading.Thread(target=self._drain_then_exit, name="drain")
        self._drain.start()
        last = threading.Timer(BOUND_S, _end_now)
        last.daemon = True
        last.start()

    def _drain_then_exit(self) -> None:
        try:
            self._plant.drain()
        finally:
            self.should_exit = True


def _end_now() -> None:
    """Something hangs: the store is as good as after a kill, and what the processes left do is known by their records."""
    log.error("not ended %g s after being asked to; ending at once", BOUND_S)
    logging.shutdown()
    os._exit(1)
