"""What `GET state` sends."""

from __future__ import annotations

from collections.abc import Mapping

from arena_gitops.spec.wire import AliasChoice, Owner
from arena_runner.server.kept import Answer
from arena_runner.server.services import documents
from arena_runner.server.world import World


def current(world: World, owner: Owner) -> Answer:
    """The state of an owner, built anew only when something may have changed."""
    return world.states.get(owner, lambda: world.store.commits, lambda: build(world, owner, {}))


def build(world: World, owner: Owner, choices: Mapping[str, AliasChoice]) -> Answer:
    """Read everything now; `choices` are what people have chosen, by deployment."""
    with world.store.read() as session:
        document = documents.state(session, world, owner, choices)
    return Answer(document.etag, document.model_dump_json().encode())
