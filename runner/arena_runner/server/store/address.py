"""Which database a server uses: `--database`, else `ARENA_DATABASE_URL`, else `settings.yaml`, else SQLite in its home.

Addresses may hold a password: whoever shows one to people shows it by `shown`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from arena_gitops.errors import UsageError
from arena_runner.server.home import Home
from arena_runner.server.settings import Settings

VARIABLE = "ARENA_DATABASE_URL"
EXPECTED = "expected postgresql://user@host:5432/name, or sqlite:////folder/file.db"
DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
SECRET = ("password", "sslpassword", "passfile")
"""Parameters of a PostgreSQL address that are nobody's business."""


def database_of(home: Home, settings: Settings, given: str | None) -> URL:
    """The address of this server's database."""
    text = given or os.environ.get(VARIABLE) or settings.database
    return address(text) if text else address(f"sqlite:///{home.database}")


def address(text: str) -> URL:
    """A checked address; the driver is ours to choose."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # a port that is no number, say; the text may hold a password
        raise UsageError(f"the database address is no URL: {EXPECTED}") from None
    name = url.drivername.partition("+")[0]
    if name not in DRIVERS:
        raise UsageError(f"database {shown(url)}: {name} is not supported; {EXPECTED}")
    if name == "sqlite" and not url.database:
        raise UsageError(
            f"database {shown(url)}: a database in memory is forgotten at every stop; {EXPECTED}"
        )
    if name != "sqlite" and find_spec("psycopg") is None:
        raise UsageError(
            'PostgreSQL needs psycopg, which is not installed: pip install "arena-runner[postgres]"'
        )
    return url.set(drivername=DRIVERS[name])


def shown(url: URL) -> str:
    """The address without its secrets."""
    public = {key: value for key, value in url.query.items() if key not in SECRET}
    plain = url.set(query=public, drivername=url.drivername.partition("+")[0])
    return plain.render_as_string(hide_password=True)
