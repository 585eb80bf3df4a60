"""`arena experiments status|logs|wait`: how an experiment's run is getting on."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import click
from pydantic import BaseModel, ConfigDict

from arena_gitops.cli import options
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import Place, open_place
from arena_gitops.cli.outcome import of_run
from arena_gitops.cli.progress import view_for
from arena_gitops.cli.runs import log_of
from arena_gitops.cli.session import Session
from arena_gitops.errors import CheckFailedError, PlatformRejectedError, Rejection, WaitTimeoutError
from arena_gitops.spec.job import RunState, RunStatus

LOOK_EVERY_S = 1.0


class Log(BaseModel):
    """What a run has logged."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    log: str


@explained("arena experiments status gsm8k-grpo-v1", one=RunStatus)
@click.command()
@click.argument("experiment_name", shell_complete=names("experiment"))
@options.target
@options.json
@click.pass_obj
def status(session: Session, *, experiment_name: str, target: str | None) -> None:
    """Show an experiment's run: state, scores, lineage, where to look."""
    place = open_place(session, target)
    row = trained(place, experiment_name)
    _tell(session, row.status(place))


@explained("arena experiments logs gsm8k-grpo-v1 --follow", one=Log)
@click.command()
@click.argument("experiment_name", shell_complete=names("experiment"))
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on until the run has ended.")
@options.target
@options.json
@click.pass_obj
def logs(session: Session, *, experiment_name: str, follows: bool, target: str | None) -> None:
    """Print what an experiment's run has logged; with --json at once, when it ends."""
    place = open_place(session, target)
    run = trained(place, experiment_name).run
    texts = log_of(place.native, run, follow=follows)
    if session.json:
        session.emit(Log(run_id=run, log="".join(texts)).model_dump_json())
        return
    for text in texts:
        click.echo(text, nl=False)


@explained(
    "arena experiments wait gsm8k-grpo-v1 --timeout 2h && arena agent deploy gsm8k-grpo-v1", one=RunStatus
)
@click.command()
@click.argument("experiment_name", shell_complete=names("experiment"))
@click.option("--timeout", type=Duration(), help="How long, for instance 90m; then exit code 9.")
@options.target
@options.json
@click.pass_obj
def wait(session: Session, *, experiment_name: str, timeout: float | None, target: str | None) -> None:
    """Follow an experiment until its run has ended; exit code 10 when it did not complete.

    Stopping to wait, by ctrl-C or by --timeout, does not stop the run.
    """
    place = open_place(session, target)
    ended = follow(place, trained(place, experiment_name), timeout_s=timeout)
    _tell(session, ended)
    check_completed(ended)


@dataclass(frozen=True, slots=True)
class Trained:
    """An experiment and its run, which others may share: equal work is done once."""

    experiment: str
    run: str

    def status(self, place: Place) -> RunStatus:
        """How the run is, under this experiment's name."""
        return place.native.run_status(self.run).model_copy(update={"experiment": self.experiment})


def trained(place: Place, name: str) -> Trained:
    """An experiment's current version, by its name or its id."""
    rows = [row for row in place.api.experiments() if name in {row.name, row.id}]
    if not rows:
        raise PlatformRejectedError(Rejection(404, "not-found", f"there is no experiment {name!r} here"))
    if (run := rows[0].run_id) is None:
        raise PlatformRejectedError(Rejection(409, "no-run", f"experiment {name!r} has no run"))
    return Trained(rows[0].id or rows[0].name, run)


def follow(place: Place, what: Trained, *, timeout_s: float | None) -> RunStatus:
    """Show a run's progress on stderr until it has ended; WaitTimeoutError when that takes too long."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    view = view_for(sys.stderr)
    try:
        while True:
            status = what.status(place)
            view.update([status])
            if status.state.ended:
                return status
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"run {what.run} is {status.state} after {timeout_s:g} s, at step "
                    f"{status.step}/{status.max_steps}; it goes on"
                )
            time.sleep(LOOK_EVERY_S)
    finally:
        view.close()


def check_completed(status: RunStatus) -> None:
    """Raise CheckFailedError for a run that ended in any other way."""
    if status.state is RunState.COMPLETED:
        return
    reason = f" ({status.reason})" if status.reason else ""
    about = f": {status.message}" if status.message else ""
    raise CheckFailedError(f"run {status.run_id} of {status.experiment} ended {status.state}{reason}{about}")


def _tell(session: Session, status: RunStatus) -> None:
    if session.json:
        session.emit(status.model_dump_json())
    else:
        click.echo("\n".join(of_run(status)))
