"""The loop with policies: budgets, evolution, exports, and a run that was interrupted equals one that was not."""

from __future__ import annotations

import json

import pytest
import torch
from labs import Recorder, files_of
from playground import job_of, play
from safetensors.torch import load_file

from arena_gitops.spec.job import RunState
from arena_runner import checkpoint
from arena_runner.ports import InterruptedRunError

EVOLVING = {
    "training": {"evo_steps": 80, "evaluation_interval": 60, "checkpoint_steps": 100, "max_steps": 400},
    "mutation": {
        "probabilities": {
            "no_mut": 0.1,
            "rl_hp_mut": 0.4,
            "arch_mut": 0.4,
            "new_layer": 0.5,
            "params_mut": 0.1,
            "act_mut": 0.1,
        },
        "rl_hp_selection": {
            "batch_size": {"min": 4, "max": 64},
            "learn_step": {"min": 2, "max": 90},
            "lr": {"min": 1e-4, "max": 1e-2},
        },
    },
}
ALGORITHMS = ["DQN", "PPO", "Recurrent PPO"]


@pytest.fixture(scope="module", params=ALGORITHMS)
def whole(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, play(job_of(request.param, **EVOLVING), folder)


def test_a_run_completes_and_is_scored_on_episodes_nobody_has_seen(whole):
    _, _, ports = whole

    assert ports.finished.state == RunState.COMPLETED, ports.finished.message
    assert [e.scores.label for e in ports.of("test_scores")] == ["base", "best"]
    assert all(e.scores.rows == 3 for e in ports.of("test_scores"))


def test_a_run_leaves_the_arithmetic_of_its_process_as_it_was(whole):
    smallest = torch.tensor(5e-324, dtype=torch.float64)

    assert whole
    assert (smallest + 0.0).item() > 0.0


def test_steps_are_environment_steps_of_a_member(whole):
    _, folder, _ = whole
    standing = checkpoint.load_standing(checkpoint.state_folders(folder / "states")[-1])

    assert {member.step for member in standing.members} == {420}  # 60 an iteration, the first end past 400


def test_evaluations_and_generations_come_when_they_are_due(whole):
    _, _, ports = whole

    assert sorted({e.step for e in ports.of("evaluation")}) == [60, 120, 180, 240, 300, 360, 420]
    assert [e.generation for e in ports.of("evolution")] == [1, 2, 3, 4]  # the run's own end does not evolve


def test_an_evaluation_is_the_same_for_all_and_disturbs_nothing(tmp_path):
    often = {"training": {"evo_steps": 200, "evaluation_interval": 40, "max_steps": 200, "hpo": False}}
    rarely = {"training": {**often["training"], "checkpoint_steps": 40, "evaluation_interval": 200}}
    states = []
    for name, sections in (("often", often), ("rarely", rarely)):
        folder = tmp_path / name
        play(job_of("DQN", **sections), folder)
        states.append(load_file(checkpoint.state_folders(folder / "states")[-1] / checkpoint.ADAPTERS))

    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_an_export_is_safetensors_and_a_spec(whole):
    name, folder, ports = whole
    saved = ports.of("checkpoint")[0].checkpoint
    export = folder / "exports" / f"step_{saved.step}" / f"m{saved.member}"
    spec = json.loads((export / "policy.json").read_text())

    assert {path.name for path in export.iterdir()} == {"policy.safetensors", "policy.json", "arena.json"}
    assert (spec["algorithm"], spec["spaces"]["does"]["sizes"]) == (name, [2])
    first = {"DQN": "q/encoder.0.weight", "PPO": "actor/encoder.0.weight"}.get(name, "actor/encoder.0.hidden")
    assert first in load_file(export / "policy.safetensors")


def test_the_same_seed_is_the_same_run(whole, tmp_path):
    name, folder, _ = whole
    play(job_of(name, **EVOLVING), tmp_path)

    assert files_of(tmp_path) == files_of(folder)


@pytest.mark.parametrize("after", [1, 3, 5])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(whole, tmp_path, after):
    name, folder, _ = whole
    job = job_of(name, **EVOLVING)
    with pytest.raises(InterruptedRunError):
        play_until(job, tmp_path, after)

    play(job, tmp_path, resume=True)

    assert files_of(tmp_path) == files_of(folder)


def play_until(job, folder, after):
    return play(job, folder, Recorder(stop_after=after))


def test_raising_max_steps_equals_having_had_them(whole, tmp_path):
    name, folder, _ = whole
    short = {**EVOLVING, "training": {**EVOLVING["training"], "max_steps": 240}}
    play(job_of(name, **short), tmp_path)

    play(job_of(name, **EVOLVING), tmp_path, resume=True)

    ours, theirs = (
        load_file(checkpoint.state_folders(f / "states")[-1] / checkpoint.ADAPTERS)
        for f in (tmp_path, folder)
    )
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)


def test_a_small_ring_forgets_and_still_resumes(tmp_path):
    sections = {**EVOLVING, "replay_buffer": {"max_size": 400}}
    job = job_of("DQN", **sections)
    play(job, tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        play_until(job, tmp_path / "cut", 4)

    play(job, tmp_path / "cut", resume=True)

    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
    last = checkpoint.state_folders(tmp_path / "whole" / "states")[-1]
    assert len(list(last.glob("page-*"))) == 3  # 180 rows an iteration; those before the last 400 are gone


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size", 8), ("learn_step", 2), ("gamma", 0.5), ("lr", 1e-2), ("tau", 0.5)]
)
def test_every_mutable_field_has_an_effect(tmp_path, name, value):
    quiet = {"training": {"hpo": False, "max_steps": 80, "test_episodes": 0}}
    changed = {**quiet, "algorithm": {name: value}}
    states = []
    for number, sections in enumerate((quiet, changed)):
        play(job_of("DQN", **sections), tmp_path / str(number))
        folder = checkpoint.state_folders(tmp_path / str(number) / "states")[-1]
        states.append(load_file(folder / checkpoint.ADAPTERS))

    role = "m0/target" if name == "tau" else "m0/q"
    assert not torch.equal(states[0][role], states[1][role])


def test_ppo_learns_to_balance_the_pole(tmp_path):
    """Seed and budget of the benchmark: 475 of 500 over 16 episodes, seen at 12,288 steps of a member."""
    sections = {
        "algorithm": {"batch_size": 128, "learn_step": 512, "lr": 1e-3, "update_epochs": 4},
        "environment": {"num_envs": 16},
        "network": {
            "latent_dim": 64,
            "encoder_config": {"hidden_size": [64]},
            "head_config": {"hidden_size": [64]},
        },
        "training": {
            "max_steps": 40_000,
            "evo_steps": 4096,
            "pop_size": 4,
            "target_score": 475.0,
            "eval_episodes": 16,
            "test_episodes": 0,
        },
        "mutation": {
            "probabilities": {"no_mut": 0.5, "rl_hp_mut": 0.5, "arch_mut": 0, "params_mut": 0},
            "rl_hp_selection": {"lr": {"min": 1e-4, "max": 1e-2}},
        },
    }

    ports = play(job_of("PPO", seed=1, **sections), tmp_path)

    assert max(event.fitness for event in ports.of("evaluation")) >= 475


def test_the_environments_constructor_gets_what_the_manifest_says(tmp_path):
    """An episode of this CartPole pays -1 at its end and nothing before."""
    sections = {"environment": {"env_config": {"sutton_barto_reward": True}}, "training": {"max_steps": 80}}

    ports = play(job_of("DQN", **sections), tmp_path)

    assert {event.fitness for event in ports.of("evaluation")} == {-1.0}
