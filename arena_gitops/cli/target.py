"""Which server: `--target`, else ARENA_BASE_URL, else `default_target` of arena.yaml, else local.

Choosing is pure; `connect` acts on the choice. A local server is started only by commands that change
something, and under `CI=true` only when somebody asked for it by name: a forgotten variable must not turn a
deployment into a training run on the CI machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from arena_gitops.cli.credentials import origin
from arena_gitops.cli.renewing import opener
from arena_gitops.errors import UsageError
from arena_gitops.platforms.absent import AbsentPlatform
from arena_gitops.platforms.arena_cloud.platform import ArenaCloudPlatform
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredResource, TargetSpec

LOCAL = "local"
CLOUD: Literal["arena_cloud"] = "arena_cloud"
HOSTED = "https://arena.agilerl.com"
"""Where hosted Arena is, unless a target says otherwise."""

Reached = HttpPlatform | AbsentPlatform | ArenaCloudPlatform


@dataclass(frozen=True, slots=True)
class Choice:
    """A server that was chosen, and by whom."""

    name: str
    """as the plan shows it"""
    url: str | None
    """None for the embedded server"""
    chosen_by: Literal["flag", "environment", "repository", "nobody"]
    options: Mapping[str, str] = field(default_factory=dict)
    platform: Literal["http", "arena_cloud"] = "http"
    """which protocol is spoken there"""

    @property
    def is_local(self) -> bool:
        """Whether it is the embedded server."""
        return self.url is None


def choose(
    flag: str | None,
    environ: Mapping[str, str],
    targets: Mapping[str, TargetSpec],
    default_target: str | None,
) -> Choice:
    """Decide which server a command speaks to; raises UsageError for a target that nobody declared."""
    choice = _choose(flag, environ, targets, default_target)
    if choice.is_local and choice.chosen_by != "flag" and environ.get("CI") == "true":
        raise UsageError(
            "CI=true and no server was named: the local server is used in CI only on request; "
            "say --target local, or name a server by --target or ARENA_BASE_URL"
        )
    return choice


def _choose(
    flag: str | None,
    environ: Mapping[str, str],
    targets: Mapping[str, TargetSpec],
    default_target: str | None,
) -> Choice:
    if flag is not None:
        return _named(flag, targets, "flag")
    if url := environ.get("ARENA_BASE_URL"):
        return Choice(url, url, "environment", platform=_protocol(url, targets))
    if default_target is not None:
        return _named(default_target, targets, "repository")
    return Choice(LOCAL, None, "nobody", _options(targets))


def _named(name: str, targets: Mapping[str, TargetSpec], by: Literal["flag", "repository"]) -> Choice:
    target = targets.get(name)
    if target is None:
        if name == LOCAL:
            return Choice(LOCAL, None, by)
        if name.startswith(("http://", "https://")):
            return Choice(name, name, by, platform=_protocol(name, targets))
        raise UsageError(_unknown(name, targets))
    if target.platform == LOCAL:
        return Choice(name, None, by, target.options)
    if target.platform == "http" and target.url:
        return Choice(name, target.url, by, target.options)
    if target.platform == CLOUD:
        return Choice(name, target.url or HOSTED, by, target.options, platform=CLOUD)
    raise UsageError(
        f"target {name!r} (platform {target.platform}) cannot be reached by this version; "
        "expected `platform: local`, `platform: arena_cloud`, or `platform: http` with a `url`"
    )


def _protocol(url: str, targets: Mapping[str, TargetSpec]) -> Literal["http", "arena_cloud"]:
    """Which protocol an address speaks: what the repository says of it decides nothing but that."""
    hosted = {HOSTED, *(t.url for t in targets.values() if t.platform == CLOUD and t.url)}
    return CLOUD if origin(url) in {origin(one) for one in hosted} else "http"


def _unknown(name: str, targets: Mapping[str, TargetSpec]) -> str:
    known = sorted({LOCAL, *targets})
    near = get_close_matches(name, known, n=1)
    hint = (
        f"did you mean {near[0]}?" if near else f"declared in arena.yaml: {', '.join(known)}, or give a URL"
    )
    return f"no target {name!r}; {hint}"


def _options(targets: Mapping[str, TargetSpec]) -> Mapping[str, str]:
    return targets[LOCAL].options if LOCAL in targets else {}


def connect(
    choice: Choice,
    environ: Mapping[str, str],
    *,
    say: Callable[[str], None],
    create: bool = False,
    run_named: bool = True,
    book: Mapping[Address, DesiredResource] | None = None,
) -> Reached:
    """Reach the chosen server.

    Args:
        choice: From `choose`.
        environ: Environment variables.
        say: Told what takes time, one line each.
        create: Make a local server where none has ever been; only an apply does that.
        run_named: Whether `targets.local.runner` may be started. Not by a plan, which runs nothing that the
            repository names.
        book: What the repository declares, for a platform that knows names only.
    """
    if choice.url is not None:
        token = opener(choice.url, environ, key_allowed=key_allowed(choice))
        if choice.platform == CLOUD:
            return ArenaCloudPlatform(choice.url, token, book=book)
        return HttpPlatform(choice.url, token)
    from arena_gitops.platforms.local import Home, find_runner, open_local

    home = Home.of(environ)
    if not create and not home.exists():
        return AbsentPlatform()
    configured = choice.options.get("runner") if run_named else None
    return open_local(home, find=lambda: find_runner(configured), say=say)


def key_allowed(choice: Choice) -> bool:
    """Whether ARENA_API_KEY may go there: not to a server that only the repository names."""
    return choice.chosen_by in {"flag", "environment"}
