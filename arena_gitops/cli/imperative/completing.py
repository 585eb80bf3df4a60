"""Names that exist on the server, for the shell's tab key: quickly or not at all, and never an error.

A server that does not run is not started for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from arena_gitops.platforms.door import Door

PATIENCE_S = 2.0
"""A shell that hangs is worse than one that offers nothing."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def names(kind: str) -> Completer:
    """Complete the names of `project`, `dataset`, `experiment`, `deployment` or `model`."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
        target = ctx.params.get("target")
        return [CompletionItem(name) for name in _known(kind, target) if name.startswith(begun)]

    return complete


def _known(kind: str, target: str | None) -> Iterable[str]:
    from arena_gitops.errors import ArenaError
    from arena_gitops.platforms.arena_api import ArenaApi

    try:
        door = _door(target)
        if door is None:
            return ()
        try:
            api = ArenaApi(door)
            ask: dict[str, Callable[[], Iterable[str]]] = {
                "project": lambda: (row.name for row in api.projects()),
                "dataset": lambda: (row.name for row in api.datasets()),
                "experiment": lambda: (row.name for row in api.experiments()),
                "deployment": lambda: (row.name for row in api.deployments()),
                "environment": lambda: (row.name for row in api.environments(None, include_arena=False)),
                "model": lambda: (row.model_name for row in api.models()),
            }
            return sorted(set(ask[kind]()))
        finally:
            door.close()
    except ArenaError:  # no server, no token, no such route: there is nothing to offer
        return ()


def _door(target: str | None) -> Door | None:
    from arena_gitops.cli.renewing import opener
    from arena_gitops.cli.stack import choose_anywhere
    from arena_gitops.cli.target import key_allowed
    from arena_gitops.platforms.door import Door
    from arena_gitops.platforms.local import Home

    choice = choose_anywhere(target)
    if choice.url is None:
        server = Home.of(os.environ).running()
        return Door(server.url, server.token, attempts=1, patience_s=PATIENCE_S) if server else None
    token = opener(choice.url, os.environ, key_allowed=key_allowed(choice))
    return Door(choice.url, token, attempts=1, patience_s=PATIENCE_S)
