"""`arena runs`: one run by its id."""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Iterator

import click

from arena_gitops.cli import options
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import open_server, open_stack
from arena_gitops.platforms.http import HttpPlatform

FOLLOW_EVERY_S = 1.0


@click.group(no_args_is_help=True)
def runs() -> None:
    """Show, follow and stop runs."""


@runs.command()
@click.argument("run")
@options.target
@options.json
@click.pass_obj
def show(session: Session, run: str, target: str | None) -> None:
    """Show the status, scores and lineage of RUN."""
    from arena_gitops.cli.outcome import of_run

    status = open_server(session, target).run_status(run)
    if session.json:
        session.emit(status.model_dump_json())
    else:
        click.echo("\n".join(of_run(status)))


@runs.command()
@click.option(
    "--fingerprint",
    required=True,
    metavar="sha256:…",
    help="Run fingerprint, or how it begins (arena explain).",
)
@options.target
@options.namespace
@options.json
@click.pass_obj
def find(session: Session, *, fingerprint: str, target: str | None, namespace: str) -> None:
    """Find runs by what they train: whose result an equal experiment takes up at no cost."""
    stack = open_stack(session, target, namespace)
    plain = fingerprint.removeprefix("sha256:")
    known = stack.platform.observe(stack.owner).runs.values()
    found = [run for run in known if plain and run.fingerprint.removeprefix("sha256:").startswith(plain)]
    if session.json:
        rows = [run.model_dump(mode="json") for run in found]
        session.emit(json.dumps({"format_version": "1.0", "kind": "arena.runs", "runs": rows}))
        return
    for run in found:
        fitness = "" if run.fitness is None else f", fitness {run.fitness:.4g}"
        again = f", rerun {run.rerun}" if run.rerun else ""
        click.echo(
            f"{run.run_id}  {run.state}  {run.experiment} v{run.version}{again}{fitness}  {run.fingerprint}"
        )
    if not found:
        session.say(f"no run with a result, and none at work, has fingerprint {fingerprint}")


@runs.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@options.target
@click.pass_obj
def logs(session: Session, run: str, follow: bool, target: str | None) -> None:
    """Print the log of RUN."""
    platform = open_server(session, target)
    for text in log_of(platform, run, follow=follow):
        click.echo(text, nl=False)


def log_of(platform: HttpPlatform, run: str, *, follow: bool) -> Iterator[str]:
    """The log; with `follow` what is added to it until the run has ended."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    shown = 0
    while True:
        ended = not follow or platform.run_status(run).state.ended
        news = platform.run_logs(run, after=shown)
        shown += len(news)
        yield decoder.decode(news, final=ended)
        if ended:
            return
        time.sleep(FOLLOW_EVERY_S)


@runs.command()
@click.argument("run")
@options.target
@options.json
@click.pass_obj
def stop(session: Session, run: str, target: str | None) -> None:
    """Ask RUN to stop at the end of its iteration; its checkpoints stay, and it is held until you decide."""
    status = open_server(session, target).stop_run(run)
    if session.json:
        session.emit(status.model_dump_json())
    else:
        session.say(
            f"run {run}: {status.state}, stopping" if not status.state.ended else f"run {run}: {status.state}"
        )
