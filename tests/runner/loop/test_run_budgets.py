"""What a run takes of the machine, and when things are due."""

import os
import subprocess
import sys
import time

import pytest

from arena_gitops.spec.job import JobLimits
from arena_gitops.spec.manifest import Manifest
from arena_runner.budgets import busy_cores, choose, free_threads
from arena_runner.population.member import Member
from arena_runner.schedule import Schedule, plan_schedule

SPIN = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"


def test_the_environment_decides_over_what_is_seen(monkeypatch):
    settings = {
        "DEVICE": "cpu",
        "DTYPE": "float32",
        "THREADS": "3",
        "ROWS_IN_FLIGHT": "7",
        "TOKENS_PER_BACKWARD": "99",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"ARENA_{name}", value)

    budgets = choose()

    assert (budgets.device, budgets.dtype, budgets.threads) == ("cpu", "float32", 3)
    assert (budgets.rows_in_flight, budgets.tokens_per_backward) == (7, 99)


@pytest.mark.parametrize(
    ("name", "value"), [("ARENA_THREADS", "0"), ("ARENA_THREADS", "many"), ("ARENA_DTYPE", "int8")]
)
def test_a_setting_that_makes_no_sense_is_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(ValueError, match=name):
        choose()


def test_threads_are_capped_by_omp_num_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    assert free_threads() == 1


def test_a_process_that_computes_is_seen_once_it_has_settled():
    spinner = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        time.sleep(0.3)
        settled, fresh = busy_cores(0.5, settled_s=0.1), busy_cores(0.2, settled_s=3600)
    finally:
        spinner.kill()
        spinner.wait()

    assert settled > 0.1
    assert fresh <= settled + os.cpu_count()


def schedule(**changes):
    defaults = {
        "max_steps": 100,
        "asked_steps": 100,
        "evaluation_interval": 3,
        "evo_steps": 2,
        "checkpoint_steps": None,
        "target_score": None,
    }
    return Schedule(**defaults | changes)


def due(test, until=12):
    return [iteration for iteration in range(until + 1) if test(iteration)]


def test_a_generations_end_evaluates_whatever_the_interval_says():
    plan = schedule()

    assert due(plan.evolves_after) == [2, 4, 6, 8, 10, 12]
    assert due(plan.evaluates_after)[1:] == [2, 3, 4, 6, 8, 9, 10, 12]


def test_without_evolution_only_the_interval_evaluates():
    assert due(schedule(evo_steps=None).evaluates_after)[1:] == [3, 6, 9, 12]


def test_a_member_stops_at_or_past_its_budget():
    plan = schedule()

    assert [plan.stopped(Member(0, {}, step=step)) for step in (99, 100, 101)] == [False, True, True]


def test_the_target_is_reached_by_any_member_and_never_by_nan():
    plan = schedule(target_score=0.5)

    assert [plan.reached(f) for f in ([0.4, 0.5], [0.4, float("nan")], [])] == [True, False, False]
    assert not schedule().reached([1.0])


def manifest(**training):
    return Manifest.from_normal(
        {
            "algorithm": {"name": "GRPO", "group_size": 4},
            "environment": {"env_type": "rollout"},
            "training": {"evo_steps": 5, "pop_size": 2, "hpo": True, "max_steps": 50} | training,
            "network": {"pretrained_model_name_or_path": "m", "max_context_length": 64},
        }
    )


def test_epochs_count_rows_times_completions():
    plan = plan_schedule(manifest(num_epochs=3), JobLimits(), rows=10)

    assert plan.max_steps == 10 * 3 * 4


def test_the_servers_limit_is_a_ceiling():
    plan = plan_schedule(manifest(), JobLimits(max_steps=30), rows=10)

    assert (plan.max_steps, plan.asked_steps) == (30, 50)


def test_evaluation_is_once_a_generation_unless_said_otherwise():
    assert plan_schedule(manifest(), JobLimits(), rows=10).evaluation_interval == 5
    assert plan_schedule(manifest(evaluation_interval=2), JobLimits(), rows=10).evaluation_interval == 2


@pytest.mark.parametrize("still", [{"hpo": False}, {"pop_size": 1}])
def test_nothing_evolves_without_hpo_or_alone(still):
    assert plan_schedule(manifest(**still), JobLimits(), rows=10).evo_steps is None
