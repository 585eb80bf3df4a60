"""Rules across the sections of a manifest, and what parses but has no room yet."""

from __future__ import annotations

import pytest

from arena_gitops.spec.algorithms import ALGORITHMS
from arena_gitops.spec.manifest import ManifestError, parse_manifest

RANGE = {"min": 1e-5, "max": 1e-3}


def broken(raw):
    with pytest.raises(ManifestError) as caught:
        parse_manifest(raw)
    return {".".join(str(part) for part in problem.path): problem for problem in caught.value.problems}


def notes(raw):
    return {".".join(note.path): note for note in parse_manifest(raw).notes}


def refusals(raw):
    return {".".join(refusal.path): refusal for refusal in parse_manifest(raw).refusals}


@pytest.mark.parametrize(
    ("section", "values", "path"),
    [
        ("training", {"evo_steps": 2_000}, "training.evo_steps"),
        ("training", {"evo_epochs": 1}, "training.evo_epochs"),
        ("training", {"eps_start": 0.1, "eps_end": 0.9}, "training.eps_start"),
        ("training", {"eval_greedy": False}, "training.eval_greedy"),
        ("algorithm", {"mini_batch_size": 6, "micro_batch_size_per_gpu": 4}, "algorithm.mini_batch_size"),
        ("algorithm", {"answer_continuation": True}, "algorithm.answer_continuation"),
        (
            "algorithm",
            {"thinking_token_budget": 64, "max_output_tokens": 64},
            "algorithm.thinking_token_budget",
        ),
        ("algorithm", {"max_output_tokens": 128}, "algorithm.max_output_tokens"),
        ("algorithm", {"normalization": "constant"}, "algorithm.normalization"),
        ("environment", {"dataset": "d", "env_url": "http://x"}, "environment.env_url"),
        ("environment", {"env_url": "http://x", "reward_file_path": "r.py"}, "environment.reward_file_path"),
    ],
)
def test_a_broken_rule_is_reported_at_the_field(grpo, section, values, path):
    grpo[section] |= values

    assert broken(grpo)[path].code == "broken-rule"


def test_several_broken_rules_are_reported_together(grpo):
    grpo["training"]["evo_steps"] = 2_000
    grpo["algorithm"]["max_output_tokens"] = 500

    assert len(broken(grpo)) == 2


def test_a_language_model_algorithm_needs_a_network(grpo):
    del grpo["network"]

    assert "GRPO trains a language model" in broken(grpo)[""].message


def test_a_classic_algorithm_has_no_language_model(manifest_of, grpo):
    raw = {**manifest_of("classic"), "network": grpo["network"]}

    assert "does not train a language model" in broken(raw)["network.pretrained_model_name_or_path"].message


@pytest.mark.parametrize(
    ("algorithm", "env_type"), [("GRPO", "gym"), ("GRPO", "dataset"), ("SFT", "rollout")]
)
def test_an_environment_fits_its_algorithm(grpo, algorithm, env_type):
    grpo["algorithm"] = {"name": algorithm}
    grpo["environment"]["env_type"] = env_type

    assert algorithm in broken(grpo)["environment.env_type"].message


def test_rows_that_are_learned_as_they_are_need_no_reward(manifest_of):
    raw = manifest_of("rows")
    raw["environment"]["reward_file_path"] = "reward.py"

    assert "learns rows as they are" in broken(raw)["environment.reward_file_path"].message


def test_a_mutable_hyperparameter_is_a_knob_of_the_algorithm(grpo):
    grpo["mutation"] = {"rl_hp_selection": {"lrr": RANGE}}

    problem = broken(grpo)["mutation.rl_hp_selection.lrr"]

    assert (problem.message, problem.hint) == ("'lrr' is not a field of GRPO", "did you mean 'lr'?")


@pytest.mark.parametrize("name", ["seed", "adv_norm", "mini_batch_size"])
def test_a_knob_without_effect_on_the_next_iteration_cannot_be_mutated(grpo, name):
    grpo["mutation"] = {"rl_hp_selection": {name: RANGE}}

    assert "cannot be mutated" in broken(grpo)[f"mutation.rl_hp_selection.{name}"].message


def test_a_start_value_lies_within_its_range(grpo):
    grpo["mutation"] = {"rl_hp_selection": {"lr": {"min": 1e-6, "max": 1e-5}}}

    assert "starts at 0.0001, outside [1e-06, 1e-05]" in broken(grpo)["mutation.rl_hp_selection.lr"].message


def test_a_range_holds_values_the_knob_may_have(grpo):
    grpo["mutation"] = {"rl_hp_selection": {"group_size": {"min": 1, "max": 8}, "beta": {"min": 0, "max": 2}}}

    assert set(broken(grpo)) == {
        "mutation.rl_hp_selection.group_size.min",
        "mutation.rl_hp_selection.beta.max",
    }


def test_a_range_is_not_upside_down(grpo):
    grpo["mutation"] = {"rl_hp_selection": {"lr": {"min": 1, "max": 0}}}

    assert "max (0) is below min (1)" in broken(grpo)["mutation.rl_hp_selection.lr.max"].message


@pytest.mark.parametrize(("size", "parts"), [(4, 2), (7, 2), (6, 3)])
def test_subpopulations_are_equal_parts_of_at_least_three(grpo, size, parts):
    grpo["training"]["pop_size"] = size
    grpo["selection"] = {"strategy": "multi_frequency", "n_subpopulations": parts}

    assert "equal parts" in broken(grpo)["training.pop_size"].message


@pytest.mark.parametrize(
    "network",
    [
        {"latent_dim": 256},
        {"head_config": {"hidden_size": [8] * 7}},
        {"head_config": {"hidden_size": [512]}},
        {
            "encoder_config": {
                "arch": "cnn",
                "channel_size": [8, 8],
                "kernel_size": [3],
                "stride_size": [1, 1],
            },
            "head_config": {"hidden_size": [64]},
        },
        {"arch": "lstm", "encoder_config": {"hidden_state_size": 512}, "head_config": {"hidden_size": [64]}},
        {"arch": "mpl", "encoder_config": {}, "head_config": {"hidden_size": [64]}},
        {"encoder_config": {"arch": "mlp", "hidden": [64]}, "head_config": {"hidden_size": [64]}},
    ],
)
def test_a_classic_network_is_checked(manifest_of, network):
    raw = {**manifest_of("classic"), "network": network}

    assert all(path.startswith("network") for path in broken(raw))


def test_a_declared_encoder_parses(manifest_of):
    network = {"arch": "mlp", "encoder_config": {"hidden_size": [64]}, "head_config": {"hidden_size": [64]}}

    manifest = parse_manifest({**manifest_of("classic"), "network": network}).manifest

    assert manifest.network.encoder_config.arch == "mlp"


def test_a_field_without_effect_is_reported_and_kept(manifest_of):
    raw = manifest_of("first_dialect")

    assert {path for path, note in notes(raw).items() if note.code == "not-acted-on"} == {
        "algorithm.use_vllm",
        "algorithm.reduce_memory_peak",
        "mutation.mutation_sd",
        "mutation.probabilities.params_mut",
        "network.lora_config.lora_dropout",
    }
    assert parse_manifest(raw).manifest.normal()["algorithm"]["use_vllm"] is False


def test_a_field_without_effect_is_checked_all_the_same(grpo):
    grpo["algorithm"]["vllm_config"] = {"max_num_seq": 8}

    assert broken(grpo)["algorithm.vllm_config.max_num_seq"].hint == "did you mean 'max_num_seqs'?"


def test_a_field_without_effect_leaves_the_normal_form_when_nobody_wrote_it(grpo):
    assert "use_vllm" not in parse_manifest(grpo).manifest.normal()["algorithm"]


def test_dropout_acts_where_rows_are_learned_as_they_are(manifest_of):
    assert "network.lora_config.lora_dropout" not in notes(manifest_of("rows"))


def test_an_unwritten_hpo_is_worth_a_word_where_it_matters(grpo):
    del grpo["training"]["hpo"]
    assert notes(grpo)["training.hpo"].code == "hpo-default"

    grpo["training"]["pop_size"] = 1
    assert "training.hpo" not in notes(grpo)


def test_an_overridden_hpo_is_written(grpo):
    del grpo["training"]["hpo"]

    parsed = parse_manifest(grpo, overrides={"training.hpo": False})

    assert not any(note.code == "hpo-default" for note in parsed.notes)


def test_a_manifest_that_is_fully_acted_on_has_no_remarks(grpo):
    assert parse_manifest(grpo).notes == parse_manifest(grpo).refusals == ()


@pytest.mark.parametrize(
    ("section", "values", "path"),
    [
        ("algorithm", {"top_k": 50}, "algorithm.top_k"),
        ("algorithm", {"quantization": "nf4"}, "algorithm.quantization"),
        ("training", {"rollout_mode": "async"}, "training.rollout_mode"),
        ("environment", {"max_turns": 4}, "environment.max_turns"),
        ("environment", {"env_type": "multiturn", "env_name": "game:X"}, "environment.env_name"),
    ],
)
def test_what_has_no_room_parses_and_is_refused_by_name(grpo, section, values, path):
    grpo[section] |= values

    assert refusals(grpo)[path].code == "no-room"


def test_values_that_ask_for_what_happens_anyway_are_fine(grpo):
    grpo["algorithm"] |= {"top_k": 0, "top_p": 1.0, "loss_type": "grpo", "quantization": None}
    grpo["environment"]["max_turns"] = 1

    assert refusals(grpo) == {}


def test_selection_without_a_room_is_refused_by_name(grpo):
    grpo["training"]["pop_size"] = 6
    grpo["selection_strategy"] = {"strategy": "multi_frequency"}

    assert "multi_frequency" in refusals(grpo)["selection_strategy.strategy"].message


def test_an_algorithm_without_a_room_is_refused_with_the_list_of_those_that_have_one():
    raw = {"algorithm": {"name": "NeuralUCB"}, "environment": {"name": "x", "env_type": "bandit"}}
    refusal = refusals(raw)["algorithm.name"]

    assert refusal.message == "algorithm 'NeuralUCB' has no room yet"
    assert refusal.hint == f"can train: {', '.join(sorted(ALGORITHMS))}"


@pytest.mark.parametrize("name", ["MATD3", "CQN", "NeuralUCB", "NeuralTS"])
def test_what_follows_later_is_refused_by_its_name(name):
    kind = {"CQN": "offline", "MATD3": "gym"}.get(name, "bandit")
    raw = {"algorithm": {"name": name}, "environment": {"name": "x", "env_type": kind}}

    assert refusals(raw)["algorithm.name"].message == f"algorithm '{name}' has no room yet"


@pytest.mark.parametrize(
    "network",
    [
        {
            "encoder_config": {
                "arch": "cnn",
                "channel_size": [8, 8],
                "kernel_size": [3, 3],
                "stride_size": [1, 1],
            }
        },
        {"encoder_config": {"arch": "lstm", "hidden_state_size": 64}},
        {"arch": "simba", "encoder_config": {"hidden_size": 64, "num_blocks": 2}},
        {"encoder_config": {"arch": "multiinput", "mlp_config": {"hidden_size": [64]}}},
    ],
    ids=["cnn", "lstm", "simba", "multiinput"],
)
def test_every_declared_encoder_parses_and_reads_back(manifest_of, network):
    raw = {**manifest_of("classic"), "network": {**network, "head_config": {"hidden_size": [64]}}}

    manifest = parse_manifest(raw).manifest

    assert parse_manifest(manifest.normal()).manifest == manifest


def test_a_classic_manifest_may_leave_its_network_out(manifest_of):
    raw = manifest_of("classic")
    del raw["network"]

    assert parse_manifest(raw).manifest.network is None


def test_a_factory_needs_an_entry_point(manifest_of):
    raw = manifest_of("classic")
    raw["environment"]["factory"] = "make"

    assert "needs entrypoint" in broken(raw)["environment.factory"].message


def test_a_classic_algorithm_has_its_own_kind_of_environment(manifest_of):
    raw = manifest_of("classic")
    raw["environment"]["env_type"] = "bandit"

    assert "MATD3 trains on env_type 'gym'" in broken(raw)["environment.env_type"].message


def test_frequency_ratios_increase(grpo):
    grpo["training"]["pop_size"] = 6
    grpo["selection"] = {"strategy": "multi_frequency", "evolution_frequency_ratios": [2, 2]}

    assert "increase strictly" in broken(grpo)["selection.evolution_frequency_ratios"].message


def test_a_thinking_budget_below_the_output_limit_is_fine(grpo):
    grpo["algorithm"] |= {"thinking_token_budget": 8, "max_output_tokens": 64}

    assert "algorithm.thinking_token_budget" in notes(grpo)


def classic(**sections):
    return {"algorithm": {"name": "DQN"}, "environment": {"name": "CartPole-v1"}, **sections}


@pytest.mark.parametrize(
    ("section", "values", "place"),
    [
        ("environment", {"name": "CartPole-v1", "env_wrappers": ["x:Y"]}, "environment.env_wrappers"),
        ("environment", {"name": "CartPole-v1", "default_type": "float64"}, "environment.default_type"),
        ("replay_buffer", {"per_buffer": True}, "replay_buffer.per_buffer"),
        ("replay_buffer", {"n_step_buffer": True}, "replay_buffer.n_step_buffer"),
        ("training", {"num_epochs": 3}, "training.num_epochs"),
        ("network", {"squash_output": True}, "network.squash_output"),
        ("mutation", {"network": {"min_latent_dim": 8}}, "mutation.network"),
    ],
)
def test_what_would_train_something_else_than_was_meant_is_refused(section, values, place):
    assert place in refusals(classic(**{section: values}))
