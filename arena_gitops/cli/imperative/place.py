"""The server a command by name speaks to, and what is remembered about it on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from arena_gitops.cli.credentials import origin
from arena_gitops.cli.imperative.memory import Memory
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import choose_anywhere
from arena_gitops.cli.target import Choice, connect
from arena_gitops.errors import PlatformUnreachableError
from arena_gitops.platforms.absent import AbsentPlatform
from arena_gitops.platforms.arena_api import ArenaApi
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.platforms.local import Home


@dataclass(frozen=True, slots=True)
class Place:
    """One server, by both of its APIs."""

    native: HttpPlatform
    api: ArenaApi
    memory: Memory


def open_place(session: Session, target: str | None) -> Place:
    """The server: `--target`, else ARENA_BASE_URL, else the repository's, else the local one, started if need be."""
    choice = choose_anywhere(target)
    platform = session.using(connect(choice, os.environ, say=session.say, create=True))
    if isinstance(platform, AbsentPlatform):
        raise PlatformUnreachableError("there is no local server here, and none was started")
    native = (
        platform if isinstance(platform, HttpPlatform) else HttpPlatform(platform.url, door=platform.door)
    )
    return Place(native, ArenaApi(platform.door), _memory(choice))


def remembered(target: str | None) -> Memory:
    """What is remembered about a server, whether it runs or not."""
    return _memory(choose_anywhere(target))


def _memory(choice: Choice) -> Memory:
    key = f"local {Home.of(os.environ).path}" if choice.url is None else origin(choice.url)
    return Memory.of(os.environ, key)
