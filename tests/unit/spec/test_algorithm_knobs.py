"""The knobs that are acted on, pinned: adding one here is a promise that the loop keeps."""

from __future__ import annotations

import pytest

from arena_gitops.spec.algorithms import ALGORITHMS, knobs_for
from arena_gitops.spec.algorithms.grpo import GrpoKnobs
from arena_gitops.spec.algorithms.sft import SftKnobs

GROUP = {
    "name",
    "adv_norm",
    "batch_size",
    "beta",
    "clip_coef",
    "clip_coef_high",
    "gradient_checkpointing",
    "group_size",
    "filter_zero_adv",
    "importance_sampling_level",
    "kl_estimator",
    "loss_type",
    "lr",
    "max_grad_norm",
    "max_output_tokens",
    "normalization",
    "overlong_buffer",
    "temperature",
    "update_epochs",
    "vllm_importance_sampling_cap",
    "vllm_importance_sampling_correction",
}
ON_POLICY = {
    "name",
    "action_std_init",
    "batch_size",
    "clip_coef",
    "ent_coef",
    "gae_lambda",
    "gamma",
    "learn_step",
    "lr",
    "max_grad_norm",
    "share_encoders",
    "target_kl",
    "update_epochs",
    "vf_coef",
}
CONTINUOUS = {"name", "batch_size", "gamma", "learn_step", "lr_actor", "lr_critic", "tau"}
NOISE = {"O_U_noise", "dt", "expl_noise", "mean_noise", "policy_freq", "theta"}
ACTED_ON = {
    **dict.fromkeys(("GRPO", "GSPO", "CISPO", "DAPO", "Dr.GRPO"), GROUP),
    "DPO": {
        "name",
        "batch_size",
        "beta",
        "gradient_checkpointing",
        "label_smoothing",
        "lr",
        "max_grad_norm",
        "nll_alpha",
        "update_epochs",
    },
    "SFT": {"name", "batch_size", "gradient_checkpointing", "lr", "max_grad_norm", "update_epochs"},
    "DQN": {"name", "batch_size", "double", "dueling", "gamma", "learn_step", "lr", "tau"},
    "Rainbow DQN": {
        "name",
        "batch_size",
        "beta",
        "combined_reward",
        "gamma",
        "learn_step",
        "lr",
        "n_step",
        "noise_std",
        "num_atoms",
        "prior_eps",
        "tau",
        "v_max",
        "v_min",
    },
    "PPO": ON_POLICY,
    "Recurrent PPO": (ON_POLICY | {"max_seq_len"}) - {"share_encoders"},
    "IPPO": ON_POLICY - {"share_encoders"},
    "DDPG": CONTINUOUS | NOISE,
    "MADDPG": (CONTINUOUS | NOISE) - {"policy_freq"},
    "TD3": CONTINUOUS | NOISE,
    "SAC": CONTINUOUS | {"target_entropy"},
}


def test_every_algorithm_is_pinned_here():
    assert set(ACTED_ON) == ALGORITHMS


@pytest.mark.parametrize("name", ACTED_ON)
def test_the_knobs_acted_on_are_these(name):
    assert set(knobs_for(name).acted_on()) == ACTED_ON[name]


@pytest.mark.parametrize("name", ACTED_ON)
def test_mutable_knobs_are_numbers_that_are_acted_on(name):
    knobs = knobs_for(name)()

    assert set(knobs.MUTABLE) <= ACTED_ON[name]
    assert all(type(value) in {int, float} for value in knobs.hyperparameters().values())


def test_published_defaults_are_kept_where_the_design_does_not_differ():
    knobs = GrpoKnobs()

    assert (knobs.batch_size, knobs.group_size, knobs.lr, knobs.beta) == (16, 8, 5e-7, 1e-3)
    assert (knobs.clip_coef, knobs.max_grad_norm, knobs.temperature) == (0.2, 0.1, 0.9)
    assert (knobs.adv_norm, knobs.kl_estimator) == ("mean_std", "k3_is")
    assert SftKnobs().lr == 5e-5


@pytest.mark.parametrize("value", ["k1", "k4", None])
def test_k1_as_a_loss_is_refused(value):
    with pytest.raises(ValueError, match="k3_is"):
        GrpoKnobs(kl_estimator=value)


def test_a_whole_number_stays_one_for_mutation():
    assert GrpoKnobs(batch_size="6").hyperparameters()["batch_size"] == 6


def test_an_algorithm_without_a_room_has_no_knobs():
    assert knobs_for("NeuralUCB") is None


PRESETS = {  # training.md §6: level, surrogate, clip, normalisation, advantage, beta, drop, overlong
    "GRPO": (None, None, 0.2, None, "sequence", "mean_std", 0.001, None, None),
    "DAPO": (None, None, 0.2, 0.28, "token", "mean_std", 0.0, True, 0.2),
    "Dr.GRPO": (None, None, 0.2, None, "constant", "mean_only", 0.0, None, None),
    "GSPO": ("trajectory", "gspo", 3e-4, 4e-4, "sequence", "mean_std", 0.0, None, None),
    "CISPO": (None, "cispo", 0.2, 5.0, "token", "mean_std", 0.0, None, None),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_papers(name):
    k = knobs_for(name)()
    clip = (k.clip_coef, k.clip_coef_high)
    rest = (k.normalization, k.adv_norm, k.beta, k.filter_zero_adv, k.overlong_buffer)

    assert (k.importance_sampling_level, k.loss_type, *clip, *rest) == PRESETS[name]


def test_a_knob_nobody_wrote_leaves_the_normal_form_and_a_presets_own_stays():
    later = {"filter_zero_adv", "overlong_buffer", "loss_type", "vllm_importance_sampling_cap"}

    assert not later & GrpoKnobs().model_dump().keys()
    assert GrpoKnobs(filter_zero_adv=False).model_dump()["filter_zero_adv"] is False
    assert knobs_for("DAPO")().model_dump()["overlong_buffer"] == 0.2
