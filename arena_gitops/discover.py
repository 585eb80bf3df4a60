"""File name = name in YAML: finds plug-ins without anybody registering them.

A plug-in room is a package (`arena_gitops.spec.kinds`); each file in it defines exactly one public class of the
room's base, and the file's name is the name users write. Third parties add theirs through the entry-point
group of the same dotted name. `names` looks without importing, so that listing stays cheap; only `find`
imports, and only installed code, never a user's repository.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import TypeVar

Plugin = TypeVar("Plugin")


@cache
def names(package: str) -> tuple[str, ...]:
    """Names of every plug-in of a room, sorted, without importing any of them."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{package} is not a package", name=package)
    own = {module.name for module in pkgutil.iter_modules(spec.submodule_search_locations)}
    return tuple(sorted({name for name in own if not name.startswith("_")} | set(_external(package))))


@cache
def module(package: str, name: str) -> ModuleType:
    """Import the file of one plug-in; raises LookupError naming those that exist."""
    if name not in names(package):
        raise LookupError(f"no {name!r} in {package}; there are: {', '.join(names(package))}")
    external = _external(package)
    if name in external:
        return importlib.import_module(external[name].module)
    return importlib.import_module(f"{package}.{name}")


def find(package: str, name: str, base: type[Plugin]) -> type[Plugin]:
    """Return the one class of `base` that the plug-in `name` defines.

    Raises:
        LookupError: there is no such plug-in, or its file defines none or several such classes.
    """
    home = module(package, name)
    found = [
        value
        for value in vars(home).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == home.__name__
        and not value.__name__.startswith("_")
    ]
    if len(found) != 1:
        many = ", ".join(sorted(cls.__name__ for cls in found)) or "none"
        raise LookupError(f"{home.__name__} must define exactly one {base.__name__}, it defines {many}")
    return found[0]


@cache
def _external(package: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=package)}
