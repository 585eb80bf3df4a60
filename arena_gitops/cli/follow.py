"""Tell what happens during an apply, and keep what its end is reported from."""

from __future__ import annotations

import sys
from typing import Any, assert_never

import click

from arena_gitops.apply.events import (
    ApplyEvent,
    Checked,
    CheckStarted,
    Progressed,
    Recovered,
    StepResult,
    StepStarted,
    Told,
    Uploaded,
    line,
)
from arena_gitops.cli.progress import View, view_for
from arena_gitops.cli.session import Session

PAST = {
    "create": "created",
    "update": "updated",
    "new_version": "new version",
    "resume": "resumed",
    "reuse": "reused",
    "promote": "chosen",
    "import": "imported",
    "retire": "retired",
    "destroy": "destroyed",
}
CHECK_MARKS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


class Follower:
    """A listener of `apply` that prints steps on stdout and everything else on stderr."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._view: View | None = None
        self._last_line: dict[str, Any] | None = None
        self.steps: list[StepResult] = []
        self.last: Progressed | None = None

    def __call__(self, event: ApplyEvent) -> None:
        """Take note of an event."""
        self._pass_on(event)
        match event:
            case Uploaded():
                self._session.say(f"uploaded {event.blob.path.name} ({event.done}/{event.total})")
            case CheckStarted():
                self._session.say(f"checking {event.address}")
            case Checked():
                result = event.result
                about = f": {result.message}" if result.message else ""
                self._session.say(f"  {CHECK_MARKS[result.status]} {result.address} {result.name}{about}")
            case StepStarted():
                pass  # its result follows within the second
            case StepResult():
                self.steps.append(event)
                self._tell(step_line(event))
            case Recovered():
                had = "had arrived" if event.arrived else "had not arrived"
                self._session.say(
                    f"an earlier apply was cut off at {event.action} {event.address}, which {had}"
                )
            case Told():
                self._session.say(event.message)
            case Progressed():
                self.last = event
                self._show(event)
            case _:
                assert_never(event)

    def _pass_on(self, event: ApplyEvent) -> None:
        """As a line of `--events`, unless it says what the last one said."""
        if not self._session.events:
            return
        told = line(event)
        if told != self._last_line:
            self._session.event(told)
        self._last_line = told

    def close(self) -> None:
        """Give the terminal back."""
        if self._view is not None:
            self._view.close()
            self._view = None

    def _show(self, event: Progressed) -> None:
        if self._view is None:
            self._view = view_for(sys.stderr)
        self._view.update(event.runs, event.deployments)

    def _tell(self, line: str) -> None:
        click.echo(line, err=self._session.quiet)


def step_line(step: StepResult) -> str:
    """`experiment/gsm8k-grpo  created  v1, run r_8f2`."""
    done = _past(step) if step.outcome == "applied" else step.outcome
    version = f"v{step.version}" if step.version and step.action.value != "retire" else ""
    run = f"run {step.run_id}" if step.run_id else ""
    facts = ", ".join(fact for fact in (version, run, step.url or "", step.message) if fact)
    return f"{step.address}  {done}" + (f"  {facts}" if facts else "")


def _past(step: StepResult) -> str:
    if step.action.value == "destroy" and step.address.startswith("deployment/"):
        return "undeployed"
    return PAST.get(step.action.value, step.action.value)
