"""A revision that is loaded and was proved takes over at once, by the request that asks for it.

Nothing depends on it: the controller does the same at its next look, and does it alone where anything is left to be
loaded or shown, or where something is wrong. What is repeated before traffic moves: the weights are read back from
where the model computes, and one token is generated.
"""

from __future__ import annotations

import logging

import httpx
from sqlalchemy.orm import Session

from arena_runner.server.model_servers import AdapterLine, RolloutError
from arena_runner.server.probe import probe_again
from arena_runner.server.services import rollouts
from arena_runner.server.services.look import Look, look_at, server_of
from arena_runner.server.services.targets import Waiting
from arena_runner.server.store.tables import RevisionRow
from arena_runner.server.world import World

PATIENCE_S = 5.0
"""A model server that takes longer for one token is left to the controller."""

log = logging.getLogger(__name__)


def hurry(world: World, namespace: str, name: str) -> None:
    """Let a deployment serve what it should if that is there; anything else is the controller's, now."""
    if at_once(world, namespace, name):
        world.bell.ring_soon()
    else:
        world.bell.ring()


def at_once(world: World, namespace: str, name: str) -> bool:
    """Whether it serves what it should from now on."""
    with world.store.read() as session:
        look = look_at(session, world, namespace, name)
        ready = _ready(session, world, look) if look is not None else None
    server = server_of(world, ready) if ready is not None else None
    if ready is None or server is None:
        return False
    line = AdapterLine(server, PATIENCE_S)
    try:
        probe_again(world, line, ready)
    except (RolloutError, httpx.TransportError) as problem:
        log.info("deployment %s does not switch at once: %s", name, problem)
        return False
    finally:
        line.close()
    with world.store.write() as session:
        return _switch(session, world, (namespace, name), ready)


def _ready(session: Session, world: World, look: Look) -> RevisionRow | None:
    """What should take over and only has to."""
    if isinstance(look.target, Waiting) or look.settled or look.state.refused == look.key:
        return None
    if look.rollout.type == "recreate":
        return None
    return rollouts.shown(session, world, look, look.target)


def _switch(session: Session, world: World, name: tuple[str, str], shown: RevisionRow) -> bool:
    look = look_at(session, world, *name)
    if look is None or isinstance(look.target, Waiting):
        return False
    ready = _ready(session, world, look)
    if ready is None or ready.adapter != shown.adapter:
        return False  # the world moved meanwhile
    loading = look.loading if look.is_loading else None
    revision = loading or rollouts.step(session, world, look, look.target)
    session.flush()
    if revision is None or revision.adapter != shown.adapter or revision.state != "loading":
        return False  # being loaded under another name, or a canary already
    if look.rollout.type == "canary" and rollouts.take_share(session, world, revision):
        return True
    serves = rollouts.take_over(session, world, revision)
    if serves and look.held_at is not None:
        look.say("held", look.hold_message)
    return serves
