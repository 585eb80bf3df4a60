"""From the folder a command stands in to the repository and the server it speaks of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arena_gitops.cli.session import Session
from arena_gitops.cli.target import Choice, choose, connect
from arena_gitops.errors import PlatformUnreachableError, RepoError
from arena_gitops.platforms.absent import AbsentPlatform
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.repo.git import find_root
from arena_gitops.repo.load import load
from arena_gitops.spec.wire import Owner
from arena_gitops.state import DesiredState


def here() -> Path:
    """The folder the command stands in (after `--chdir`)."""
    return Path.cwd()


def read_repository(namespace: str) -> DesiredState:
    """Everything the repository around us declares; raises RepoError with all its problems."""
    return load(find_root(here()), namespace=namespace)


def choose_for(desired: DesiredState, target: str | None) -> Choice:
    """The server for a repository that has been read."""
    return choose(target, os.environ, desired.targets, desired.default_target)


@dataclass(frozen=True, slots=True)
class Stack:
    """Whose resources, and where."""

    owner: Owner
    choice: Choice
    platform: HttpPlatform | AbsentPlatform
