"""The live table of a terminal: one row per member, redrawn in place. Only this module imports rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from arena_gitops.cli import figures
from arena_gitops.cli.outcome import of_deployment
from arena_gitops.cli.progress import Deployed
from arena_gitops.spec.job import RunStatus

STATE_STYLES = {"running": "cyan", "completed": "green", "failed": "red", "stopped": "yellow"}
BAR_WIDTH = 24


class LiveView:
    """A table on stderr, so that stdout can be piped away."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._live.start()
        self._told: dict[str, int] = {}

    def update(self, runs: Sequence[RunStatus], deployments: Sequence[Deployed] = ()) -> None:
        """Redraw, and print new lineage above the table where it stays."""
        for run in runs:
            for record in run.lineage[self._told.get(run.run_id, 0) :]:
                self._live.console.print(Text(f"{run.experiment}: {figures.lineage(record)}", style="dim"))
            self._told[run.run_id] = len(run.lineage)
        drawn = [draw(run) for run in runs] + [
            Text(of_deployment(name, status)) for name, status in deployments
        ]
        self._live.update(Group(*drawn), refresh=True)

    def close(self) -> None:
        """Stop redrawing; the last table stays."""
        self._live.stop()


def draw(run: RunStatus) -> Text | Group:
    """One run: a heading and its members."""
    heading = Text.assemble(
        (run.experiment, "bold"),
        "  ",
        (str(run.state), STATE_STYLES.get(run.state, "")),
        f"  generation {run.generation}  run {run.run_id}",
    )
    if run.message:
        heading.append(f"  {run.message}")
    if not run.members:
        return heading
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("member", "", "step", "reward", "fitness", "tokens/s", "left"):
        table.add_column(name, justify="left" if name == "" else "right", style="", header_style="dim")
    for member in run.members:
        table.add_row(
            f"m{member.member}",
            ProgressBar(total=max(run.max_steps, 1), completed=member.step, width=BAR_WIDTH),
            f"{member.step}/{run.max_steps}",
            figures.score(member.reward),
            figures.score(member.fitness),
            figures.rate(member.tokens_per_second),
            figures.duration(member.eta_seconds),
        )
    return Group(heading, table)
