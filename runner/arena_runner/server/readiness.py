"""Whether this server can take work, and what is missing: what `/readyz` says.

Needed is what a submission needs: a database at the newest migration, room on the disk, no stop under way. MLflow,
model servers and workers of other machines are not: what they do waits for them, and the server says `degraded`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from typing import Literal

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from pydantic import computed_field
from sqlalchemy.exc import SQLAlchemyError

from arena_gitops.spec.resource import Frozen
from arena_runner.server.services import workers
from arena_runner.server.store.database import MIGRATIONS
from arena_runner.server.world import World

ROOM = 256 * 2**20
"""Bytes that must be free: a resume state of a small run and the database's journal."""


class Part(Frozen):
    """One thing the server stands on."""

    name: str
    ok: bool
    needed: bool
    """whether work can be taken without it"""
    message: str = ""
    """what is missing, and what to do"""


class Readiness(Frozen):
    """The answer of `/readyz`."""

    parts: tuple[Part, ...]
    lineage: str | None = None
    """identity of the database"""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Whether work can be taken."""
        return all(part.ok or not part.needed for part in self.parts)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["ready", "degraded", "not-ready"]:
        """`degraded`: work is taken, and something that it will need later is missing."""
        if not self.ok:
            return "not-ready"
        return "ready" if all(part.ok for part in self.parts) else "degraded"


def look(world: World) -> Readiness:
    """Ask everything once."""
    lineage, database = _database(world)
    others = [*_others(world), *([_workers(world)] if lineage is not None else [])]
    return Readiness(parts=(*database, *_machine(world), *others), lineage=lineage)


def _database(world: World) -> tuple[str | None, list[Part]]:
    try:
        lineage = world.store.lineage()
        with world.store.engine.connect() as connection:
            revision = MigrationContext.configure(connection).get_current_revision()
    except (SQLAlchemyError, LookupError) as problem:
        text = f"the database does not answer ({type(problem).__name__}); see the server's log"
        return None, [Part(name="database", ok=False, needed=True, message=text)]
    newest = _newest()
    wrong = f"the database is at {revision}, this server needs {newest}: restart it, it migrates at its start"
    fits = revision == newest
    migrations = Part(name="migrations", ok=fits, needed=True, message="" if fits else wrong)
    return lineage, [Part(name="database", ok=True, needed=True), migrations]


@cache
def _newest() -> str | None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return ScriptDirectory.from_config(config).get_current_head()


def _machine(world: World) -> Iterator[Part]:
    free = shutil.disk_usage(world.home.root).free
    short = f"{free // 2**20} MiB are free where the server's home is; {ROOM // 2**20} are needed"
    yield Part(name="disk", ok=free >= ROOM, needed=True, message="" if free >= ROOM else short)
    stopping = world.draining.is_set()
    yield Part(
        name="running", ok=not stopping, needed=True, message="the server is stopping" if stopping else ""
    )


def _workers(world: World) -> Part:
    """Tiers whose jobs nobody is there to do; those of this machine have workers when they are needed."""
    with world.store.read() as session:
        present = workers.present(session, world)
    missing = [tier.id for tier in world.tiers.tiers if tier.executor == "pull" and tier.id not in present]
    text = f"no worker asks for jobs of tier {', '.join(missing)}; they wait" if missing else ""
    return Part(name="workers", ok=not missing, needed=False, message=text)


def _others(world: World) -> Iterator[Part]:
    up = world.links.mlflow_ready.is_set()
    text = "MLflow does not answer; runs go on, and it is told later"
    yield Part(name="mlflow", ok=up, needed=False, message="" if up else text)
    down = sorted(world.links.wanted_models - world.links.model_servers.keys())
    text = f"no answer from the model servers of {', '.join(down)}" if down else ""
    yield Part(name="model servers", ok=not down, needed=False, message=text)
