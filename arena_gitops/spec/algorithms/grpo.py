"""GRPO: groups of completions, scored, compared with their own mean (training.md §6 holds the loss)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.knobs import RolloutKnobs
from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Understood
from arena_gitops.spec.understood import Profiling

_OLD_LOGPROBS = NotActedOn("old logprobs are the trainer's own")


class GrpoKnobs(RolloutKnobs):
    """Knobs of GRPO; `batch_size` counts prompts per iteration of a member."""

    ALGORITHM: ClassVar[str] = "GRPO"
    MUTABLE: ClassVar[tuple[str, ...]] = (
        "batch_size",
        "beta",
        "clip_coef",
        "group_size",
        "lr",
        "max_grad_norm",
        "temperature",
        "update_epochs",
    )

    name: Literal["GRPO"] = "GRPO"
    group_size: Annotated[Int, Field(ge=2)] = 8
    """completions per prompt; one alone would have no mean to be compared with"""
    lr: Annotated[Float, Field(ge=0)] = 5e-7
    clip_coef: Annotated[Float, Field(ge=0, le=1)] = 0.2
    clip_coef_high: Annotated[Float, Field(ge=0)] | None = None
    """upper clip when it differs from `clip_coef` (clip higher); older manifests write a list of two"""
    normalization: Literal["sequence", "token", "constant"] = "sequence"
    """how token losses become one number: mean of sequence means, token mean, or by a constant length"""
    adv_norm: Literal["mean_std", "mean_only"] = "mean_std"
    kl_estimator: Literal["k3_is", "k3", "k2", "k1_reward"] = "k3_is"
    """how `beta` weighs the distance to the reference; `use_bias_correction_kl` chooses k3_is or k3"""

    loss_type: Annotated[
        Literal["grpo", "gspo", "cispo"] | None, Only("grpo", why="only the GRPO loss has a room")
    ] = None
    importance_sampling_level: Annotated[
        Literal["token", "turn", "trajectory"] | None, Only("token", why="ratios are taken per token")
    ] = None
    use_kl_advantage_shaping: Annotated[Bool | None, Only(False, why="write kl_estimator: k1_reward")] = None
    advantage_granularity: Understood[Literal["auto", "trajectory", "turn"]] = None
    whiten_advantages: Understood[Bool] = None
    adv_clip_range: Understood[Float] = None
    filter_zero_adv: Understood[Bool] = None
    adv_filter_eps: Understood[Annotated[Float, Field(ge=0)]] = None
    turn_advantage_trajectory_fallback: Understood[Bool] = None
    loss_norm: Understood[Literal["micro_batch", "accumulation_window", "episode"]] = None
    old_logprobs_source: Annotated[Literal["trainer", "rollout"] | None, _OLD_LOGPROBS] = None
    off_policy_token_mask_bounds: Understood[tuple[Float, Float]] = None
    off_policy_sequence_mask_threshold: Understood[Annotated[Float, Field(ge=0)]] = None
    kl_clamp: Understood[Annotated[Float, Field(gt=0)]] = None
    profiling_config: Understood[Profiling] = None
