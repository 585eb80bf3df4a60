"""Rules of manifests whose policies act in an environment: how many act, with what memory, from which replay."""

from __future__ import annotations

import pytest

from arena_gitops.spec.manifest import ManifestError, parse_manifest


def refusals(raw):
    return {".".join(refusal.path): refusal for refusal in parse_manifest(raw).refusals}


def classic(**sections):
    return {"algorithm": {"name": "DQN"}, "environment": {"name": "CartPole-v1"}, **sections}


@pytest.mark.parametrize(
    ("algorithm", "environment", "told"),
    [
        ("DQN", "mpe2.simple_spread_v3", "DQN trains one agent"),
        ("PPO", "pettingzoo.sisl.waterworld_v4", "PPO trains one agent"),
        ("IPPO", "CartPole-v1", "IPPO trains several agents"),
        ("MADDPG", "ALE/Breakout-v5", "MADDPG trains several agents"),
    ],
)
def test_an_algorithm_and_an_environment_agree_on_how_many_act(algorithm, environment, told):
    raw = {"algorithm": {"name": algorithm}, "environment": {"name": environment}}

    assert told in refusals(raw)["environment.name"].message


@pytest.mark.parametrize("environment", ["mpe2.simple_spread_v3", "crossing"])
@pytest.mark.parametrize("name", ["IPPO", "MADDPG"])
def test_several_agents_act_in_pettingzoo_and_in_environments_of_ones_own(name, environment):
    assert not refusals({"algorithm": {"name": name}, "environment": {"name": environment}})


@pytest.mark.parametrize(
    ("name", "encoder", "told"),
    [
        ("DQN", {"arch": "lstm", "hidden_state_size": 8}, "DQN does not train an encoder of kind lstm"),
        ("RecurrentPPO", {"arch": "mlp", "hidden_size": [8]}, "Recurrent PPO does not train"),
    ],
)
def test_a_declared_encoder_and_its_algorithm_agree_on_memory(name, encoder, told):
    network = {"encoder_config": encoder, "head_config": {"hidden_size": [8]}}

    assert (
        told
        in refusals(classic(algorithm={"name": name}, network=network))["network.encoder_config.arch"].message
    )


@pytest.mark.parametrize(("field", "value"), [("init_layers", False), ("dropout", 0.1)])
def test_what_no_network_here_does_is_refused(field, value):
    encoder = (
        {"arch": "lstm", "hidden_state_size": 8}
        if field == "dropout"
        else {"arch": "mlp", "hidden_size": [8]}
    )
    network = {"encoder_config": {**encoder, field: value}, "head_config": {"hidden_size": [8]}}
    name = "RecurrentPPO" if field == "dropout" else "DQN"

    assert f"network.encoder_config.{field}" in refusals(classic(algorithm={"name": name}, network=network))


@pytest.mark.parametrize("name", ["per_buffer", "n_step_buffer"])
def test_rainbow_replays_by_priority_and_looks_ahead(name):
    raw = classic(algorithm={"name": "RainbowDQN"}, replay_buffer={name: True})

    assert not refusals(raw)
    assert f"replay_buffer.{name}" in refusals({**raw, "replay_buffer": {name: False}})


def test_rainbows_buffer_reads_back():
    raw = classic(algorithm={"name": "RainbowDQN"}, replay_buffer={"per_buffer_args": {"alpha": 0.7}})
    manifest = parse_manifest(raw).manifest

    assert parse_manifest(manifest.normal()).manifest == manifest
    assert manifest.normal()["replay_buffer"]["per_buffer_args"] == {"alpha": 0.7}


def test_the_ends_of_rainbows_returns_are_in_order():
    with pytest.raises(ManifestError) as caught:
        parse_manifest(classic(algorithm={"name": "RainbowDQN", "v_min": 3, "v_max": 3}))

    (problem,) = caught.value.problems
    assert (problem.path, "v_min" in problem.message) == (("algorithm",), True)


def test_nulls_of_published_manifests_mean_their_absence():
    nulls = {"learning_delay": None, "eps_start": None, "eval_steps": None, "target_score": None}
    training = parse_manifest(classic(training=nulls)).manifest.classic

    assert (training.learning_delay, training.eps_start, training.eval_steps) == (0, 1.0, None)
