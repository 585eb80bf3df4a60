"""`arena rollback` and `arena resume`: hold a deployment at an earlier revision; end that hold, or the one of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from arena_gitops.cli import options
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import open_stack
from arena_gitops.errors import (
    FailedStep,
    PartialApplyError,
    UsageError,
    WaitTimeoutError,
)
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import DeploymentStatus, Owner

LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Seat:
    """A deployment of this stack on its server."""

    platform: HttpPlatform
    owner: Owner
    name: str

    def status(self) -> DeploymentStatus:
        """How it is now."""
        document = self.platform.observe(self.owner).resources.get(Address("deployment", self.name))
        if document is None or document.deployment is None:
            raise UsageError(f"stack {self.owner.stack} has no deployment/{self.name} here")
        return document.deployment


@click.command()
@click.argument("address", metavar="deployment/NAME")
@click.option("--to", type=click.IntRange(min=1), help="The revision to go back to. Default: the one before.")
@click.option(
    "--timeout", type=Duration(), default="2m", show_default=True, help="How long to wait for it to serve."
)
@options.target
@options.namespace
@options.json
@click.pass_obj
def rollback(
    session: Session, *, address: str, to: int | None, timeout: float, target: str | None, namespace: str
) -> None:
    """Serve an earlier revision again, and hold it there.

    The hold is in every plan until `arena resume`, or until the deployment's file says something else.
    """
    seat = _seat(session, address, target, namespace)
    answer = seat.platform.rollback(seat.name, seat.owner, to).deployment
    hold = answer.hold if answer else None
    if hold is None:
        raise PartialApplyError(f"{address} was resumed by somebody in the meantime")
    wanted = hold.revision
    status = _until(seat, lambda status: status.revision == wanted and status.state == "held", timeout)
    _tell(session, seat, status)


@click.command()
@click.argument("address", metavar="KIND/NAME")
@options.target
@options.namespace
@options.json
@click.pass_obj
def resume(session: Session, *, address: str, target: str | None, namespace: str) -> None:
    """End a hold: of a rollback, a failed rollout, or a run.

    A deployment/NAME is rolled out again as its file says. The run of an experiment/NAME that was stopped or has
    failed goes on from its last saved state.
    """
    at = _named(address, "experiment", "deployment")
    stack = open_stack(session, target, namespace)
    seat = Seat(stack.own_server(), stack.owner, at.name)
    run = seat.platform.resume(at, seat.owner).run
    if run is None:
        _tell(session, seat, seat.status())
    else:
        _tell_run(session, run)


def _named(address: str, *kinds: str) -> Address:
    kind, _, name = address.partition("/")
    if kind not in kinds or not name:
        expected = " or ".join(f"{kind}/NAME" for kind in kinds)
        raise UsageError(f"expected {expected}, not {address!r}")
    return Address(kind, name)


def _seat(session: Session, address: str, target: str | None, namespace: str) -> Seat:
    name = _named(address, "deployment").name
    stack = open_stack(session, target, namespace)
    server = stack.own_server()
    return Seat(server, stack.owner, name)


def _until(seat: Seat, arrived: Callable[[DeploymentStatus], bool], timeout: float) -> DeploymentStatus:
    """Look until it has arrived; raises when the rollout failed or takes too long."""
    deadline = time.monotonic() + timeout
    while True:
        status = seat.status()
        if arrived(status):
            return status
        if status.refused:
            step = FailedStep(f"deployment/{seat.name}", status.message)
            raise PartialApplyError("the rollback failed; what served goes on serving", (step,))
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"deployment/{seat.name} is {status.state} after {timeout:g} s: {status.message}"
            )
        time.sleep(LOOK_EVERY_S)


def _tell_run(session: Session, run: RunStatus) -> None:
    from arena_gitops.cli.outcome import of_run

    if session.json:
        session.emit(run.model_dump_json())
    else:
        click.echo("\n".join(of_run(run)))


def _tell(session: Session, seat: Seat, status: DeploymentStatus) -> None:
    from arena_gitops.cli.outcome import of_deployment

    if session.json:
        session.emit(status.model_dump_json())
    else:
        click.echo(of_deployment(seat.name, status))
