"""The population's curves and its lineage, as files to look at in MLflow. Matplotlib is optional."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from arena_gitops.spec.job import Evaluation, JobEvent, Lineage, Progress

Series = Mapping[int, list[tuple[int, float]]]
"""member → (step, value), in order of step"""

MOST_WORDS = 80
"""mutations that can be told beside each other"""


def collect(events: Iterable[JobEvent]) -> tuple[Series, Series]:
    """Training reward and fitness by member; what a resumed segment repeats is taken once."""
    reward: dict[int, dict[int, float]] = {}
    fitness: dict[int, dict[int, float]] = {}
    for event in events:
        if isinstance(event, Progress) and event.reward is not None:
            reward.setdefault(event.member, {}).setdefault(event.step, event.reward)
        elif isinstance(event, Evaluation):
            fitness.setdefault(event.member, {}).setdefault(event.step, event.fitness)
    return _in_order(reward), _in_order(fitness)


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(path: Path, title: str, reward: Series, fitness: Series, lineage: Iterable[Lineage]) -> None:
    """Write a PNG: training reward, if there is one, above fitness, above who descends from whom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    records = sorted(lineage, key=lambda record: (record.generation, record.member))
    panels = {"training reward": reward, "fitness": fitness} if reward else {"fitness": fitness}
    count = len(panels) + bool(records)
    figure = Figure(figsize=(9, 3.2 * count), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, series) in zip(grid, panels.items(), strict=False):
        for member, points in series.items():
            steps, values = [p[0] for p in points], [p[1] for p in points]
            axes.plot(steps, values, marker="o", markersize=2, label=f"m{member}", color=f"C{member}")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if series:
            axes.legend(loc="upper left", fontsize="small")
    if records:
        _draw_descent(grid[-1], records, end=max((p[-1][0] for p in fitness.values()), default=0))
    grid[-1].set_xlabel("step")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _draw_descent(axes: Any, records: Sequence[Lineage], *, end: int) -> None:
    """One line a place, in the colour of the member it descends from; copies as arrows, mutations in words."""
    founder = {record.member: record.member for record in records}
    since, told = dict.fromkeys(founder, 0), len(records) <= MOST_WORDS
    for _, group in groupby(records, key=lambda record: record.generation):
        before, here = dict(founder), list(group)
        for record in here:
            colour = f"C{before[record.parent]}"
            axes.hlines(record.member, since[record.member], record.step, color=f"C{before[record.member]}")
            since[record.member], founder[record.member] = record.step, before[record.parent]
            ends = (record.step, record.member), (record.step, record.parent)
            if record.parent != record.member:
                axes.annotate(
                    "",
                    *ends,
                    arrowprops={"arrowstyle": "->", "color": colour, "connectionstyle": "arc3,rad=0.1"},
                )
            if record.mutation is not None and told:
                place = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": "x-small"}
                axes.annotate(_mutation(record), ends[0], **place)
    for member, step in since.items():
        axes.hlines(member, step, max(end, step), color=f"C{founder[member]}")
    axes.set_yticks(sorted(founder), [f"m{member}" for member in sorted(founder)])
    axes.invert_yaxis()
    axes.margins(y=0.15)
    axes.set_ylabel("descent")


def _mutation(record: Lineage) -> str:
    """`lr up`, or what was done to its network."""
    if record.old is None or record.new is None:
        return str(record.mutation)
    return f"{record.mutation} {'up' if record.new > record.old else 'down'}"


def _in_order(series: dict[int, dict[int, float]]) -> Series:
    return {member: sorted(points.items()) for member, points in sorted(series.items())}
