"""`arena status`: what this stack has on the platform, and how it is."""

from __future__ import annotations

import json
import sys
import time

import click

from arena_gitops.cli import figures, options
from arena_gitops.cli.outcome import of_deployment
from arena_gitops.cli.progress import view_for
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Stack, open_stack
from arena_gitops.spec.wire import ResourceDocument

WATCH_EVERY_S = 2.0


@click.command()
@options.target
@options.namespace
@click.option("--watch", is_flag=True, help="Go on until every run has ended, telling what is new.")
@options.json
@click.pass_obj
def status(session: Session, *, target: str | None, namespace: str, watch: bool) -> None:
    """Show the runs and deployments of this stack."""
    stack = open_stack(session, target, namespace)
    if watch:
        _follow(stack)
    observed = stack.platform.observe(stack.owner)
    documents = [document for _, document in sorted(observed.resources.items())]
    if session.json:
        found = {
            "format_version": "1.0",
            "kind": "arena.status",
            "stack": stack.owner.stack,
            "namespace": stack.owner.namespace,
            "resources": [document.model_dump(mode="json") for document in documents],
        }
        session.emit(json.dumps(found, ensure_ascii=False))
        return
    lines = [line for document in documents if (line := _line(document)) is not None]
    click.echo(
        "\n".join(lines) if lines else f"stack {stack.owner.stack} has no runs and no deployments here"
    )


def _follow(stack: Stack) -> None:
    """News on stderr, until nothing trains any more."""
    view = view_for(sys.stderr)
    try:
        while True:
            found = [d for _, d in sorted(stack.platform.observe(stack.owner).resources.items())]
            runs = [document.run for document in found if document.run is not None]
            view.update(runs, [(d.name, d.deployment) for d in found if d.deployment is not None])
            if all(run.state.ended for run in runs):
                return
            time.sleep(WATCH_EVERY_S)
    finally:
        view.close()


def _line(document: ResourceDocument) -> str | None:
    if document.deployment is not None:
        return of_deployment(document.name, document.deployment)
    run = document.run
    if run is None:
        return None
    fitness = f", best {run.best.label} fitness {figures.score(run.best.fitness)}" if run.best else ""
    left = max((m.eta_seconds for m in run.members if m.eta_seconds is not None), default=None)
    eta = f", {figures.duration(left)} left" if left is not None and not run.state.ended else ""
    because = f" ({run.message})" if run.message else ""
    first = (
        f"experiment/{document.name} v{document.version}: {run.state}{because} "
        f"at step {run.step}/{run.max_steps}{fitness}{eta}, run {run.run_id}"
    )
    return "\n".join([first, *(f"  warning: {warning}" for warning in run.warnings)])
