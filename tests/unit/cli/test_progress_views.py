"""What is shown while runs train, and what is printed when they have ended."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from arena_gitops.cli import figures, outcome
from arena_gitops.cli.live import LiveView, draw
from arena_gitops.cli.progress import PlainView, view_for
from arena_gitops.spec import job
from arena_gitops.spec.job import Checkpoint, Lineage, MemberStatus, RunState, RunStatus
from arena_gitops.spec.wire import DeploymentStatus

DIGEST = "sha256:" + "0" * 64
CLONE = Lineage(
    generation=1,
    step=64,
    member=2,
    parent=0,
    mutation="lr",
    old=3e-4,
    new=3.6e-4,
    fitness=0.4,
    parent_fitness=0.6,
)
KEPT = Lineage(generation=1, step=64, member=0, parent=0, mutation=None, fitness=0.6, parent_fitness=0.6)


def member(place: int, iteration: int, **figures_: float) -> MemberStatus:
    return MemberStatus(member=place, step=iteration * 32, iteration=iteration, **figures_)


def run(state: str = "running", **fields: object) -> RunStatus:
    return RunStatus(
        run_id="r_1", experiment="gsm8k-grpo", fingerprint="f", state=RunState(state), max_steps=128, **fields
    )


class Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0
        self.view = PlainView(self.lines.append, clock=lambda: self.now)

    def after(self, seconds: float, status: RunStatus) -> list[str]:
        self.now += seconds
        before = len(self.lines)
        self.view.update([status])
        return self.lines[before:]


def test_a_change_of_state_is_one_line_and_no_news_is_none():
    told = Lines()
    assert told.after(0, run("queued")) == ["gsm8k-grpo: queued [run r_1]"]
    assert told.after(1, run("queued")) == []
    assert told.after(1, run("failed", message="reward.py:3 divides by zero")) == [
        "gsm8k-grpo: failed (reward.py:3 divides by zero) [run r_1]"
    ]


def test_an_iteration_of_all_members_is_one_line_with_their_figures():
    told = Lines()
    told.after(0, run())
    both = (
        member(0, 1, reward=0.5, tokens_per_second=100.0, eta_seconds=60.0),
        member(1, 1, reward=0.25, tokens_per_second=50.0, eta_seconds=65.0),
    )
    assert told.after(1, run(members=both, step=32)) == [
        "gsm8k-grpo: step 32/128, iteration 1, reward m0=0.500 m1=0.250, 150 tokens/s, 1m 05s left"
    ]
    assert told.after(1, run(members=both, step=32)) == []


def test_fast_iterations_are_limited_to_one_line_a_second():
    told = Lines()
    shown = [told.after(0.1, run(members=(member(0, i),))) for i in range(1, 31)]
    assert sum("iteration" in line for lines in shown for line in lines) == 3


def test_an_iteration_counts_when_the_slowest_member_has_finished_it():
    told = Lines()
    told.after(0, run(members=(member(0, 1), member(1, 1))))
    assert told.after(5, run(members=(member(0, 2), member(1, 1)))) == []


def test_an_evaluation_is_a_line():
    told = Lines()
    told.after(0, run(members=(member(0, 1),)))
    assert told.after(0, run(members=(member(0, 1, fitness=0.61),), step=32)) == [
        "gsm8k-grpo: step 32/128, fitness m0=0.610"
    ]


def test_each_lineage_record_is_told_once():
    told = Lines()
    told.after(0, run())
    expected = [
        "gsm8k-grpo: generation 1: m0 kept (0.600)",
        "gsm8k-grpo: generation 1: m2 <- clone of m0 (0.400 -> 0.600), lr 0.0003 -> 0.00036",
    ]
    assert told.after(0, run(lineage=(KEPT, CLONE))) == expected
    assert told.after(0, run(lineage=(KEPT, CLONE))) == []


def test_a_deployment_is_told_when_something_about_it_changed():
    told = Lines()
    loading = ("gsm8k", DeploymentStatus(state="loading"))
    told.view.update([], [loading])
    told.view.update([], [loading])
    told.view.update([], [("gsm8k", DeploymentStatus(state="serving", revision=1))])
    assert told.lines == ["deployment/gsm8k: loading", "deployment/gsm8k: serving, revision 1"]


def test_without_a_terminal_the_view_is_plain():
    stream = io.StringIO()
    view = view_for(stream)
    view.update([run("queued")])
    view.close()
    assert stream.getvalue() == "gsm8k-grpo: queued [run r_1]\n"


def test_the_live_table_has_a_row_for_each_member():
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(draw(run(members=(member(0, 1, reward=0.5, eta_seconds=9), member(1, 2)), generation=3)))
    text = console.export_text()
    assert "generation 3" in text
    assert "m0" in text
    assert "32/128" in text
    assert "64/128" in text
    assert "9s" in text


def test_the_live_view_keeps_lineage_above_the_table():
    console = Console(file=io.StringIO(), width=120, force_terminal=True, record=True)
    view = LiveView(console)
    view.update([run(lineage=(CLONE,))])
    view.update([run(lineage=(CLONE,))], [("gsm8k", DeploymentStatus(state="loading"))])
    view.close()
    assert "deployment/gsm8k: loading" in console.export_text(clear=False)
    assert console.export_text().count("m2 <- clone of m0") == 1


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "-"), (0.4, "0s"), (59.6, "1m 00s"), (125, "2m 05s"), (7800, "2h 10m")]
)
def test_durations_read_well(seconds, shown):
    assert figures.duration(seconds) == shown


def test_base_and_best_stand_side_by_side_with_errors_and_gain():
    base = job.TestScores(
        label="base", rows=128, mean={"reward": 0.4, "correct": 0.2}, stderr={"reward": 0.03}
    )
    best = job.TestScores(
        label="best", rows=128, mean={"reward": 0.55, "correct": 0.2}, stderr={"reward": 0.04}
    )
    assert figures.test_scores((best, base)) == [
        "test split (128 rows, used by neither training nor selection):",
        "  reward   base 0.400 ± 0.030  best 0.550 ± 0.040  gain +0.150 (+3.0 standard errors)",
        "  correct  base 0.200  best 0.200  gain +0.000",
    ]
    assert figures.test_scores(()) == []


def test_the_outcome_of_a_run_names_best_lineage_and_mlflow():
    best = Checkpoint(step=96, member=2, generation=3, fitness=0.7, digest=DIGEST, files={}, size_bytes=1)
    status = run("completed", step=128, best=best, lineage=(KEPT, CLONE), mlflow_url="http://127.0.0.1:1/x")
    assert outcome.of_run(status) == [
        "experiment/gsm8k-grpo: completed at step 128/128, run r_1",
        "  best checkpoint: step_96/m2, fitness 0.700",
        "  lineage:",
        "    generation 1: m2 <- clone of m0 (0.400 -> 0.600), lr 0.0003 -> 0.00036",
        "  MLflow: http://127.0.0.1:1/x",
    ]


def test_the_outcome_of_a_deployment_says_where_it_is():
    status = DeploymentStatus(
        state="serving", revision=2, run_id="r_1", checkpoint="step_96/m2", url="http://127.0.0.1:1/i/gsm8k"
    )
    assert outcome.of_deployment("gsm8k", status) == (
        "deployment/gsm8k: serving step_96/m2 of run r_1, revision 2 at http://127.0.0.1:1/i/gsm8k"
    )
