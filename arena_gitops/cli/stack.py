"""From the folder a command stands in to the repository and the server it speaks of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from arena_gitops.cli.session import Session
from arena_gitops.cli.target import Choice, Reached, choose, connect
from arena_gitops.errors import BlockedError, PlatformUnreachableError, RepoError, UsageError
from arena_gitops.plan.scope import GIT, Scope, changed_since
from arena_gitops.platforms.absent import AbsentPlatform
from arena_gitops.platforms.arena_cloud.platform import ArenaCloudPlatform
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.repo.git import find_root
from arena_gitops.repo.load import Limits, load, load_at, load_head
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_gitops.state import DesiredResource, DesiredState

MAIN = "main"
"""The namespace that is meant when none is said."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository that has been read."""

    root: Path
    desired: DesiredState

    @classmethod
    def read(cls, namespace: str, limits: Limits | None = None) -> Repository:
        """Read the one we stand in; raises RepoError with all its problems."""
        root = find_root(Path.cwd())
        return cls(root, load(root, namespace=namespace, limits=limits))

    @classmethod
    def emptied(cls, namespace: str) -> Repository:
        """The one we stand in, as if it declared nothing; only `arena.yaml` needs to be valid."""
        root = find_root(Path.cwd())
        head = load_head(root, namespace=namespace)
        nothing = DesiredState(head.owner, {}, targets=head.targets, default_target=head.default_target)
        return cls(root, nothing)

    def choose(self, target: str | None) -> Choice:
        """The server this repository is about."""
        return choose(target, os.environ, self.desired.targets, self.desired.default_target)

    def resolved(self, scope: Scope, paths: Iterable[Path] = ()) -> Scope:
        """The scope with commits looked up: `git:REF` becomes what has changed since; and what `paths` declare."""
        select = [str(address) for path in paths for address in self._declared(path)]
        for expression in scope.select:
            plain = expression.removeprefix("+").removesuffix("+")
            if not plain.startswith(GIT):
                select.append(expression)
                continue
            ref = plain.removeprefix(GIT)
            if not ref or ref.startswith("-"):
                raise UsageError(f"--select {expression}: expected git:REF, for example git:origin/main")
            before = load_at(self.root, ref, namespace=self.desired.owner.namespace)
            select += changed_since(expression, before, self.desired)
        return scope.model_copy(update={"select": tuple(dict.fromkeys(select))})

    def _declared(self, path: Path) -> list[Address]:
        """What a file, or the files of a folder, declare or hold."""
        place = path.resolve()
        found = [
            address
            for address, resource in self.desired.resources.items()
            if any((self.root / file).resolve().is_relative_to(place) for file in _files(resource))
        ]
        if not found:
            raise UsageError(f"nothing is declared in {path}")
        return found

    def journal(self, choice: Choice) -> Path | None:
        """`<git dir>/arena/<target>.ndjson`: beside the history, so that it is never committed.

        Another namespace is another file: two applies of one checkout must not read each other's intents.
        """
        folder = _git_dir(self.root)
        namespace = self.desired.owner.namespace
        named = choice.name if namespace == MAIN else f"{choice.name}@{namespace}"
        return folder / "arena" / f"{re.sub(r'[^A-Za-z0-9._@-]+', '-', named)}.ndjson" if folder else None


@dataclass(frozen=True, slots=True)
class Stack:
    """Whose resources, and where."""

    owner: Owner
    platform: Reached

    def own_server(self) -> HttpPlatform:
        """The platform, for what only a server of ours can do; says why it is none."""
        if isinstance(self.platform, HttpPlatform):
            return self.platform
        if isinstance(self.platform, ArenaCloudPlatform):
            raise BlockedError(f"{self.platform.url} speaks a protocol that has no call for this")
        raise PlatformUnreachableError("there is no local server yet: nothing has been applied here")


def open_stack(session: Session, target: str | None, namespace: str) -> Stack:
    """The stack of the repository we stand in, on its server; only `arena.yaml` needs to be valid."""
    head = load_head(find_root(Path.cwd()), namespace=namespace)
    choice = choose(target, os.environ, head.targets, head.default_target)
    return Stack(head.owner, session.using(connect(choice, os.environ, say=session.say)))


def open_server(session: Session, target: str | None) -> HttpPlatform:
    """A server by itself; the repository, if we stand in one, only says which."""
    platform = session.using(connect(choose_anywhere(target), os.environ, say=session.say))
    if isinstance(platform, AbsentPlatform):
        raise PlatformUnreachableError(
            "there is no local server yet: nothing has been applied on this machine"
        )
    return platform if isinstance(platform, HttpPlatform) else HttpPlatform(platform.url, door=platform.door)


def choose_anywhere(target: str | None) -> Choice:
    """The server, wherever the command stands; the repository, if there is one, only says which."""
    try:
        root = find_root(Path.cwd())
    except RepoError:  # a server can be used from anywhere
        return choose(target, os.environ, {}, None)
    head = load_head(root)
    return choose(target, os.environ, head.targets, head.default_target)


def _files(resource: DesiredResource) -> set[str]:
    """Where a resource was written: its document, its manifest, its code and rows."""
    written = {span.file for span in resource.spans.values()} | {str(blob.path) for blob in resource.blobs}
    return written | ({resource.provenance.path} if resource.provenance.path else set())


def _git_dir(root: Path) -> Path | None:
    for folder in (root, *root.parents):
        git = folder / ".git"
        if git.is_dir():
            return git
        if git.is_file():  # a worktree or a submodule: the file says where
            return (folder / git.read_text().removeprefix("gitdir:").strip()).resolve()
    return None
