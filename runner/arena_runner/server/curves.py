"""The population's curves and its lineage, as files to look at in MLflow. Matplotlib is optional."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path

from arena_gitops.spec.job import Evaluation, JobEvent, Lineage, Progress

Series = Mapping[int, list[tuple[int, float]]]
"""member → (step, value), in order of step"""


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
    """Write a PNG: training reward, if there is one, above fitness with its clones."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {"training reward": reward, "fitness": fitness} if reward else {"fitness": fitness}
    figure = Figure(figsize=(9, 3.5 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
    for axes, (label, series) in zip(grid[:, 0], panels.items(), strict=True):
        for member, points in series.items():
            steps, values = [p[0] for p in points], [p[1] for p in points]
            axes.plot(steps, values, marker="o", markersize=2, label=f"m{member}", color=f"C{member}")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if series:
            axes.legend(loc="upper left", fontsize="small")
    below = grid[-1, 0]
    below.set_xlabel("step")
    for record in lineage:
        if record.parent != record.member and None not in (record.fitness, record.parent_fitness):
            here, there = (record.step, record.fitness), (record.step, record.parent_fitness)
            arrow = {"arrowstyle": "->", "color": f"C{record.parent}"}
            below.annotate("", xy=here, xytext=there, arrowprops=arrow)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _in_order(series: dict[int, dict[int, float]]) -> Series:
    return {member: sorted(points.items()) for member, points in sorted(series.items())}
