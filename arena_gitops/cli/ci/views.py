"""`arena ci comment`, `summary`, `annotate`: show what another job or step has found.

`comment` is also what a `workflow_run` job calls for a fork's pull request, whose own job may not write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from arena_gitops.cli.ci.actions import Actions, OtherRun
from arena_gitops.cli.ci.finding import Finding
from arena_gitops.cli.ci.sticky import open_github, write
from arena_gitops.cli.session import Session
from arena_gitops.errors import BlockedError, StaleError, UsageError
from arena_gitops.platforms.github import GitHub

Command = TypeVar("Command", bound=Callable[..., Any])


def _source(command: Command) -> Command:
    return click.option(
        "--from",
        "source",
        required=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The document that `arena ci plan --out` wrote.",
    )(command)


@click.command()
@_source
@click.pass_context
def comment(ctx: click.Context, *, source: Path) -> None:
    """Write the pull request's comment.

    In a workflow_run job the document comes from a run that a stranger may have changed: it is checked, its
    pull request is looked up by the run's own commit, and the comment approves nothing.
    """
    session, actions = ctx.ensure_object(Session), _actions(ctx)
    finding = Finding.read(source)
    if (run := actions.other_run) is not None:
        if finding.head != run.head:
            raise BlockedError(
                f"{source} is about another commit than the run it came from; nothing was written"
            )
        finding = finding.model_copy(update={"run_url": run.url})
        number = _number(open_github(session, actions), run)
        write(session, actions, number, finding.place, finding.comment(approves=False))
        return
    if actions.pull is None:
        raise UsageError("this job has no pull request: expected the event pull_request or workflow_run")
    write(session, actions, actions.pull.number, finding.place, finding.comment())


@click.command()
@_source
@click.pass_context
def summary(ctx: click.Context, *, source: Path) -> None:
    """Show a plan on the job's page."""
    _actions(ctx).summarise(Finding.read(source).summary())


@click.command()
@_source
@click.pass_context
def annotate(ctx: click.Context, *, source: Path) -> None:
    """Show a plan beside the code."""
    _actions(ctx).annotate(Finding.read(source).annotations())


def _actions(ctx: click.Context) -> Actions:
    return ctx.ensure_object(Session).using(Actions.read(os.environ))


def _number(github: GitHub, run: OtherRun) -> int:
    """Which pull request a run was for: never what its artifact says."""
    if len(run.numbers) == 1:
        return run.numbers[0]
    pull = github.open_pull(run.owner, run.branch, run.head) if run.owner and run.branch else None
    if pull is None:
        raise StaleError("no open pull request ends in the commit of that run any more; nothing was written")
    return pull.number
