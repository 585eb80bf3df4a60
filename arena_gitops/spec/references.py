"""A resource that can say what it refers to; the base of every kind."""

from __future__ import annotations

from typing import NamedTuple

from arena_gitops.spec.resource import Ref, Resource


class Reference(NamedTuple):
    """One reference of a resource to another."""

    path: tuple[str, ...]
    """where it is written, from the document's root"""
    kind: str
    """kind of the resource it names, as addresses spell it"""
    ref: Ref


class Referring(Resource):
    """A resource and the resources it names."""

    def references(self) -> tuple[Reference, ...]:
        """Every reference written in this document."""
        return ()
