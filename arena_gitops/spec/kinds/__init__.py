"""The resource kinds: one file each, found by looking. The file's name is the kind's name in addresses."""

from __future__ import annotations

from arena_gitops import discover
from arena_gitops.spec import resource
from arena_gitops.spec.references import Referring

_FOUND: dict[str, type[Referring]] = {
    name: discover.find(__name__, name, Referring) for name in discover.names(__name__)
}

KINDS: dict[str, type[Referring]] = {_FOUND[name].__name__: _FOUND[name] for name in resource.KINDS}
"""`kind:` as documents write it → its class, in the order in which an apply touches them."""

ADDRESS_KIND: dict[str, str] = {_FOUND[name].__name__: name for name in resource.KINDS}
"""`kind:` as documents write it → the kind in addresses."""
