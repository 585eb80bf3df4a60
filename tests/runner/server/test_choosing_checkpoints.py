"""`best`, `step_N` and `step_N/mK`: which export they name, and what is said when they name none."""

import pytest

from arena_gitops.spec.job import Checkpoint
from arena_runner.server.choice import NoCheckpointError, best, best_by, choose, listing

DIGEST = "sha256:" + "0" * 64


def export(step, member, fitness):
    return Checkpoint(
        step=step, member=member, generation=0, fitness=fitness, digest=DIGEST, files={}, size_bytes=1
    )


EXPORTS = (export(8, 1, 0.5), export(16, 0, 0.7), export(16, 1, 0.6), export(24, 0, 0.7), export(24, 2, 0.1))


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ("best", "step_16/m0"),
        ("step_16", "step_16/m0"),
        ("step_23", "step_16/m0"),
        ("step_1000", "step_24/m0"),
        ("step_8", "step_8/m1"),
        ("step_24/m2", "step_24/m2"),
        ("step_24/m1", "step_16/m1"),
        ("step_15/m1", "step_8/m1"),
    ],
)
def test_a_rule_names_one_export(rule, label):
    assert choose(rule, EXPORTS).label == label


@pytest.mark.parametrize("rule", ["step_7", "step_24/m9", "newest", "@champion", "step_"])
def test_a_rule_that_names_none_is_an_error(rule):
    with pytest.raises(NoCheckpointError):
        choose(rule, EXPORTS)


def test_the_error_lists_what_exists_newest_first():
    with pytest.raises(
        NoCheckpointError, match=r"no checkpoint step_7; there are: step_24/m0 \(fitness 0.7\), "
    ):
        choose("step_7", EXPORTS)


def test_ties_go_to_the_earliest_step_and_then_the_lowest_member():
    assert best((export(16, 2, 0.5), export(16, 1, 0.5), export(24, 0, 0.5))).label == "step_16/m1"


def test_an_export_without_fitness_is_never_best():
    assert best((export(8, 0, None), export(16, 0, -5.0))).label == "step_16/m0"
    assert best((export(8, 0, None),)) is None


@pytest.mark.parametrize(
    ("figures", "mode", "label"),
    [
        ({(8, 1): 0.9, (16, 0): 0.1}, "max", "step_8/m1"),
        ({(8, 1): 0.9, (16, 0): 0.1}, "min", "step_16/m0"),
        ({(24, 0): 0.5, (16, 1): 0.5, (16, 0): 0.5}, "min", "step_16/m0"),
        ({(8, 1): float("nan"), (24, 2): -3.0}, "max", "step_24/m2"),
        ({(8, 1): float("inf"), (24, 2): 3.0}, "max", "step_24/m2"),
    ],
)
def test_best_by_another_figure_is_its_highest_or_lowest_and_the_earliest_of_equals(figures, mode, label):
    assert best_by(EXPORTS, figures, mode).label == label


def test_nothing_is_best_by_a_figure_that_nothing_has():
    assert best_by(EXPORTS, {(1, 1): 0.5}, "max") is None


def test_a_long_list_is_cut():
    assert listing([export(step, 0, None) for step in range(20)]).endswith("and 8 more")
