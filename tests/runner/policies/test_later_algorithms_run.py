"""Rainbow DQN, IPPO and MADDPG in the loop: they evolve, and a run that was interrupted equals one that was not."""

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

SHORT = {"training": {"eval_steps": 10}}
SECTIONS = {"Rainbow DQN": {"replay_buffer": {"max_size": 500}}, "IPPO": SHORT, "MADDPG": SHORT}
RANGES = {
    "Rainbow DQN": {"batch_size": {"min": 4, "max": 64}, "learn_step": {"min": 2, "max": 90}},
    "IPPO": {"batch_size": {"min": 4, "max": 64}, "learn_step": {"min": 16, "max": 90}},
    "MADDPG": {"batch_size": {"min": 4, "max": 64}, "learn_step": {"min": 2, "max": 90}},
}
FIRST = {
    "Rainbow DQN": "q/value.0.noise_weight",
    "IPPO": "listener_0/critic/encoder.0.weight",
    "MADDPG": "speaker_0/critic/encoder.0.weight",
}


def job(name):
    sections = SECTIONS[name]
    budget = {"evo_steps": 80, "evaluation_interval": 80, "checkpoint_steps": 80, "max_steps": 320}
    return job_of(
        name,
        **{
            **sections,
            "training": {**sections.get("training", {}), **budget},
            "mutation": {
                "probabilities": {
                    "no_mut": 0,
                    "rl_hp_mut": 0.4,
                    "arch_mut": 0.4,
                    "new_layer": 0.5,
                    "params_mut": 0.1,
                    "act_mut": 0.1,
                },
                "rl_hp_selection": RANGES[name],
            },
        },
    )


@pytest.fixture(scope="module", params=SECTIONS)
def whole(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param.replace(" ", "_"))
    return request.param, folder, play(job(request.param), folder)


def test_a_run_completes_evolves_and_leaves_safetensors(whole):
    name, folder, ports = whole
    saved = ports.of("checkpoint")[-1].checkpoint
    export = folder / "exports" / f"step_{saved.step}" / f"m{saved.member}"

    assert ports.finished.state == RunState.COMPLETED, ports.finished.message
    assert any(record.mutation for event in ports.of("evolution") for record in event.records)
    assert FIRST[name] in load_file(export / "policy.safetensors")
    assert json.loads((export / "policy.json").read_text())["algorithm"] == name


def test_an_interrupted_run_goes_on_as_if_nothing_had_been(whole, tmp_path):
    name, folder, _ = whole
    with pytest.raises(InterruptedRunError):
        play(job(name), tmp_path, Recorder(stop_after=2))

    play(job(name), tmp_path, resume=True)

    assert files_of(tmp_path) == files_of(folder)


def test_everything_a_member_has_is_finite_and_followed_by_its_twins(whole):
    name, folder, _ = whole
    weights = load_file(checkpoint.state_folders(folder / "states")[-1] / checkpoint.ADAPTERS)
    shapes = {key: value.shape for key, value in weights.items() if not key.endswith("designs")}

    assert all(torch.isfinite(value).all() for key, value in weights.items() if key in shapes)
    for key, shape in shapes.items():
        for twin, role in (("_target", ""), ("/target", "/q")):
            if key.endswith(twin):
                assert shapes[key.removesuffix(twin) + role] == shape, name
