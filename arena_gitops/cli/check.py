"""`arena check`: look at datasets, rewards and experiments before anything is spent on them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from arena_gitops.apply import inspection
from arena_gitops.apply.events import ApplyEvent, Checked, silent
from arena_gitops.apply.inspection import Inspection
from arena_gitops.cli import options
from arena_gitops.cli.plan import write_atomically
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import CLOUD, connect
from arena_gitops.errors import CheckFailedError, UsageError
from arena_gitops.report import checks as report


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option(
    "--run", "run", is_flag=True, help="Run rewards too, in the sandbox of the target; else nothing is run."
)
@click.option(
    "--forecast",
    is_flag=True,
    help="With --run: ask the base model too; how many groups will carry no signal?",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the verdicts here too, as JSON.",
)
@options.target
@options.namespace
@options.json
@click.pass_obj
def check(
    session: Session,
    *,
    addresses: tuple[str, ...],
    run: bool,
    forecast: bool,
    form: str,
    out: Path | None,
    target: str | None,
    namespace: str,
) -> None:
    """Check datasets, rewards and experiments before a run.

    All of them, or each ADDRESS (reward/gsm8k) with what it is used for. Without --run the files are read and nothing is run. Exit code 10 when a check failed.
    """
    session.json = session.json or form == "json"
    if forecast and not run:
        raise UsageError("--forecast asks a base model, so that it needs --run")
    repository = Repository.read(namespace)
    chosen = inspection.chosen(repository.desired, addresses)
    text = form == "text" and not session.json
    if run:
        choice = repository.choose(target)
        if choice.platform == CLOUD:
            raise UsageError(f"{choice.name} runs no checks by themselves; add --target local")
        platform = session.using(connect(choice, os.environ, create=True, say=session.say))
        say = _say if text else silent
        found = inspection.run(platform, repository.desired, chosen, say, forecast=forecast)
    else:
        found = inspection.static(repository.desired, chosen)
    if out is not None:
        write_atomically(out, found.model_dump_json(indent=2).encode() + b"\n")
    _tell(session, found, form, said=run)
    if found.failed:
        count = len(found.failed)
        raise CheckFailedError(f"{count} check{'' if count == 1 else 's'} failed")


def _say(event: ApplyEvent) -> None:
    """Verdicts as they come: a check that hangs shows where."""
    if isinstance(event, Checked):
        click.echo(report.line(event.result))


def _tell(session: Session, found: Inspection, form: str, *, said: bool) -> None:
    if session.json:
        session.emit(found.model_dump_json())
    elif form == "markdown":
        click.echo(report.markdown(found.results, found.summary), nl=False)
    else:
        for result in () if said else found.results:
            click.echo(report.line(result))
        click.echo(report.summary(found.summary))
