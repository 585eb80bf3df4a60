"""Options that several commands share, each written once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from arena_gitops.cli.duration import Duration
from arena_gitops.cli.session import Session
from arena_gitops.spec.resource import NAMES, is_name

Command = TypeVar("Command", bound=Callable[..., Any])


def target(command: Command) -> Command:
    """`--target`."""
    return click.option(
        "--target",
        metavar="NAME|URL",
        help="A target of arena.yaml, `local`, or a URL. Default: ARENA_BASE_URL, else default_target, else local.",
    )(command)


def namespace(command: Command) -> Command:
    """`--namespace`."""
    return click.option(
        "--namespace",
        metavar="NAME",
        default="main",
        show_default=True,
        callback=_checked_namespace,
        help="Whose resources these are within the stack. pr-NUMBER is a preview: its runs are cut short.",
    )(command)


def _checked_namespace(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Refused here, before anything is read or asked: a namespace becomes part of names on the server."""
    if is_name(value):
        return value
    near = re.sub(r"[^a-z0-9]+", "-", value.lower())[:63].strip("-")
    hint = f"; perhaps {near}" if near else ""
    raise click.BadParameter(f"{value!r} is no namespace: {NAMES}, such as pr-12{hint}")


def json(command: Command) -> Command:
    """`--json`: recorded in the session, so that an error too is one JSON document on stdout."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=_remember_json,
        help="Print exactly one JSON document on stdout; everything else goes to stderr.",
    )(command)


def _remember_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        _one_form(ctx).json = True


def apply_output(command: Command) -> Command:
    """`--json`, `--json-into` and `--events`, of whatever applies a plan."""
    command = click.option(
        "--events",
        type=click.Choice(["ndjson"]),
        expose_value=False,
        callback=_remember_events,
        help="Print one JSON object a line on stdout as things happen: the plan, steps, progress, the end.",
    )(command)
    command = click.option(
        "--json-into",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the JSON document of --json to this file too.",
    )(command)
    return json(command)


def _remember_events(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        _one_form(ctx).events = True


def _one_form(ctx: click.Context) -> Session:
    session = ctx.ensure_object(Session)
    if session.json or session.events:
        raise click.UsageError("--json is one document, --events ndjson is one a line: choose one of them")
    return session


def scope(command: Command) -> Command:
    """`--select`, `--rerun`, `--rerun-stale`, `--budget`, as one `Scope`."""

    @wraps(command)
    def with_scope(
        *args: Any,
        select: tuple[str, ...],
        rerun: tuple[str, ...],
        rerun_stale: tuple[str, ...],
        budget: float | None,
        **kwargs: Any,
    ) -> Any:
        from arena_gitops.plan.scope import Scope  # commands without a plan need not load it

        chosen = Scope(select=select, rerun=rerun, rerun_stale=rerun_stale, budget=budget)
        return command(*args, scope=chosen, **kwargs)

    found: Any = click.option(
        "--budget",
        type=click.FloatRange(min=0),
        metavar="CREDITS",
        help="Block a plan that can cost more than this.",
    )(with_scope)
    for name, metavar, text in reversed(_SCOPE):
        found = click.option(name, metavar=metavar, multiple=True, help=text)(found)
    return cast("Command", select(found))


def select(command: Command) -> Command:
    """`--select`."""
    return click.option(
        "--select",
        metavar="EXPR",
        multiple=True,
        help="Only KIND/NAME, tag:LABEL[=VALUE], or what changed since git:REF; +EXPR adds parents, EXPR+ children.",
    )(command)


_SCOPE = (
    ("--rerun", "ADDR", "Train this experiment once more, although nothing changed."),
    ("--rerun-stale", "ADDR", "Train the experiments again that are stale because of this dataset."),
)


def pace(command: Command) -> Command:
    """`--lock-timeout` and `--parallelism`, of whatever changes a platform."""
    command = click.option(
        "--parallelism",
        type=click.IntRange(1, 64),
        default=8,
        show_default=True,
        help="How many changes are made at a time.",
    )(command)
    return click.option(
        "--lock-timeout",
        type=Duration(),
        default="5m",
        show_default=True,
        help="How long to wait while somebody else applies to this stack; exit code 5.",
    )(command)


def allow(command: Command) -> Command:
    """`--allow` and `--allow-dirty`, as one set of consents."""
    return click.option(
        "--allow",
        type=click.Choice(["interrupt", "empty", "removals", "oversize"]),
        multiple=True,
        callback=lambda _ctx, _param, given: frozenset(given),
        help="Consent in advance: stop a running run, remove many resources, or all of an emptied repository, "
        "or start what does not seem to fit into memory.",
    )(command)
