"""Follow runs while they train: a live table on a terminal, plain lines everywhere else.

Both views are fed with whole statuses and remember what they have shown; neither asks a platform anything.
Plain lines are few on purpose: one per change of state, per iteration (at most one a second per run), per
evaluation and per step of evolution, so that a CI log stays readable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from arena_gitops.cli import figures
from arena_gitops.cli.outcome import of_deployment
from arena_gitops.spec.job import MemberStatus, RunStatus
from arena_gitops.spec.wire import DeploymentStatus

LINE_EVERY_S = 1.0

Deployed = tuple[str, DeploymentStatus]
"""A deployment's name and how it is."""


class View(Protocol):
    """Where progress is shown."""

    def update(self, runs: Sequence[RunStatus], deployments: Sequence[Deployed] = ()) -> None:
        """Show the newest statuses."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def view_for(stream: TextIO) -> View:
    """The live table where somebody watches, else plain lines."""
    if stream.isatty():
        from arena_gitops.cli.live import LiveView

        return LiveView()
    return PlainView(lambda line: print(line, file=stream, flush=True))  # the view's own stream


class PlainView:
    """One line per thing that happened."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._seen: dict[str, RunStatus] = {}
        self._written: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def update(self, runs: Sequence[RunStatus], deployments: Sequence[Deployed] = ()) -> None:
        """Write what is new since the last update."""
        for run in runs:
            for line in self._news(self._seen.get(run.run_id), run):
                self._write(f"{run.experiment}: {line}")
            self._seen[run.run_id] = run
        for name, status in deployments:
            line = of_deployment(name, status)
            if self._told.get(name) != line:
                self._write(line)
                self._told[name] = line

    def close(self) -> None:
        """Nothing to restore."""

    def _news(self, before: RunStatus | None, run: RunStatus) -> list[str]:
        lines = []
        if before is None or before.state != run.state:
            because = f" ({run.message})" if run.message else ""
            lines.append(f"{run.state}{because} [run {run.run_id}]")
        if self._iteration_is_due(run) and run.members and _iteration(before) < _iteration(run):
            self._written[run.run_id] = self._clock()
            lines.append(_iteration_line(run))
        if run.members and _fitnesses(before) != _fitnesses(run):
            lines.append(f"step {run.step}/{run.max_steps}, fitness {_each(run, figures.score, 'fitness')}")
        known = len(before.lineage) if before else 0
        lines.extend(figures.lineage(record) for record in run.lineage[known:])
        return lines

    def _iteration_is_due(self, run: RunStatus) -> bool:
        last = self._written.get(run.run_id)
        return last is None or self._clock() - last >= LINE_EVERY_S


def _iteration(run: RunStatus | None) -> int:
    return min((m.iteration for m in run.members), default=0) if run else 0


def _fitnesses(run: RunStatus | None) -> list[float | None]:
    """Empty while nobody has been evaluated, so that the first members are no news."""
    found = [m.fitness for m in run.members] if run else []
    return found if any(f is not None for f in found) else []


def _iteration_line(run: RunStatus) -> str:
    speed = sum(m.tokens_per_second or 0.0 for m in run.members) or None
    left = max((m.eta_seconds for m in run.members if m.eta_seconds is not None), default=None)
    return (
        f"step {run.step}/{run.max_steps}, iteration {_iteration(run)}, "
        f"reward {_each(run, figures.score, 'reward')}, {figures.rate(speed)} tokens/s, "
        f"{figures.duration(left)} left"
    )


def _each(run: RunStatus, show: Callable[[float | None], str], name: str) -> str:
    def value(member: MemberStatus) -> float | None:
        return member.reward if name == "reward" else member.fitness

    return " ".join(f"m{member.member}={show(value(member))}" for member in run.members)
