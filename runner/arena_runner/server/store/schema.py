"""Every table there is, whichever module of this package declares it: what migrations and backups go by."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from sqlalchemy import MetaData

from arena_runner.server import store
from arena_runner.server.store.tables import Base


def every_table() -> MetaData:
    """The tables of all modules beside this one; to add some, add a module."""
    for module in pkgutil.iter_modules(store.__path__):
        if not module.ispkg:
            import_module(f"{store.__name__}.{module.name}")
    return Base.metadata
