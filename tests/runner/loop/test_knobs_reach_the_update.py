"""Every knob of a manifest that is said to act reaches the update; a knob that does nothing is a broken promise."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from arena_gitops.spec.algorithms.dpo import DpoKnobs
from arena_gitops.spec.algorithms.grpo import GrpoKnobs
from arena_gitops.spec.algorithms.sft import SftKnobs
from arena_runner.population.member import Member
from arena_runner.rollouts.imitated import Imitated
from arena_runner.rollouts.preferred import Preferred
from arena_runner.rollouts.scored import Scored

BY_THE_TASK = {"name", "batch_size", "group_size", "filter_zero_adv", "overlong_buffer"}
"""How much is asked for, not how it is learned; the loop's own tests cover them."""
WITHOUT_A_TRACE = {"gradient_checkpointing"}
"""Changes memory and no number: tests/runner/loop/test_gradient_checkpointing.py."""
ANOTHER = {
    "adv_norm": "mean_only",
    "beta": 0.5,
    "clip_coef": 0.3,
    "clip_coef_high": 0.4,
    "importance_sampling_level": "trajectory",
    "kl_estimator": "k2",
    "label_smoothing": 0.1,
    "loss_type": "cispo",
    "lr": 0.5,
    "max_grad_norm": 7.0,
    "max_output_tokens": 9,
    "nll_alpha": 0.0,
    "normalization": "token",
    "temperature": 0.5,
    "update_epochs": 3,
    "vllm_importance_sampling_cap": 3.0,
    "vllm_importance_sampling_correction": False,
}


def grpo_settings(knobs):
    task = Scored(None, None, None, (), knobs, 64, 0)
    return asdict(task._settings(Member(0, knobs.hyperparameters())))


def sft_settings(knobs):
    return asdict(Imitated(None, (), knobs, 0.0, 0)._settings(Member(0, knobs.hyperparameters())))


@pytest.mark.parametrize("name", sorted(set(GrpoKnobs.acted_on()) - BY_THE_TASK - WITHOUT_A_TRACE))
def test_a_knob_of_grpo_changes_the_update(name):
    assert grpo_settings(GrpoKnobs(**{name: ANOTHER[name]})) != grpo_settings(GrpoKnobs())


def dpo_settings(knobs):
    return asdict(Preferred(None, (), knobs, 0.0, 0)._settings(Member(0, knobs.hyperparameters())))


@pytest.mark.parametrize("name", sorted(set(DpoKnobs.acted_on()) - BY_THE_TASK - WITHOUT_A_TRACE))
def test_a_knob_of_dpo_changes_the_update(name):
    assert dpo_settings(DpoKnobs(**{name: ANOTHER[name]})) != dpo_settings(DpoKnobs())


@pytest.mark.parametrize("name", sorted(set(SftKnobs.acted_on()) - BY_THE_TASK - WITHOUT_A_TRACE))
def test_a_knob_of_sft_changes_the_update(name):
    assert sft_settings(SftKnobs(**{name: ANOTHER[name]})) != sft_settings(SftKnobs())


def test_the_upper_clip_follows_the_lower_unless_it_is_written():
    assert grpo_settings(GrpoKnobs(clip_coef=0.3))["clip_high"] == 0.3
    assert grpo_settings(GrpoKnobs(clip_coef=0.3, clip_coef_high=0.4))["clip_high"] == 0.4


def test_a_loss_type_brings_its_own_level_and_cap_unless_they_are_written():
    assert grpo_settings(GrpoKnobs(loss_type="gspo"))["level"] == "sequence"
    assert grpo_settings(GrpoKnobs(loss_type="gspo", importance_sampling_level="token"))["level"] == "token"
    assert grpo_settings(GrpoKnobs(loss_type="cispo"))["clip_high"] == 5.0
    assert grpo_settings(GrpoKnobs(loss_type="cispo", clip_coef_high=3.0))["clip_high"] == 3.0
