"""What every algorithm's knobs share; `spec/algorithms/` has one file for each that has a room.

Field names and defaults are the published ones. A field without a mark is acted on by the loop; a test pins
the list, so that nothing is promised by accident.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue, model_serializer, model_validator

from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Section, Understood, UnlessWritten
from arena_gitops.spec.understood import CosineSchedule, Fsdp, Profiling, VllmConfig

_OLD_LOGPROBS = NotActedOn("old logprobs are the trainer's own")
_WHOLE_VOCABULARY = "training rollouts sample from the whole vocabulary at `temperature`"


class Knobs(Section):
    """The `algorithm` section. Subclasses pin `name` to their canonical name."""

    ALGORITHM: ClassVar[str] = ""
    MUTABLE: ClassVar[tuple[str, ...]] = ()
    """fields evolution may change; each has an effect in the loop from the next iteration on"""

    MATHS: ClassVar[str] = ""
    """the runner's file, where it is not the algorithm's own: presets share one loss"""

    name: str

    def hyperparameters(self) -> dict[str, int | float]:
        """The values a member starts with, by name; an `int` stays an int."""
        return {name: getattr(self, name) for name in self.MUTABLE}


class OpaqueKnobs(Section):
    """The section of an algorithm that is published but has no room here: kept as written, unchecked."""

    name: str
    knobs: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or "knobs" in raw:
            return raw
        return {"name": raw.get("name"), "knobs": {key: value for key, value in raw.items() if key != "name"}}

    @model_serializer(mode="plain")
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.knobs}


class TextKnobs(Knobs):
    """Knobs of every algorithm that trains a language model."""

    batch_size: Annotated[Int, Field(ge=1)] = 16
    max_grad_norm: Annotated[Float, Field(ge=0)] = 0.1
    update_epochs: Annotated[Int, Field(ge=1)] = 1

    gradient_checkpointing: Annotated[Bool | None, UnlessWritten] = None
    """recompute every layer in the backward pass: less memory, more time, the same result; false unless written"""
    seed: Annotated[Int | None, NotActedOn("mutation.rand_seed seeds the whole run")] = None
    use_separate_reference_adapter: Understood[Bool] = None
    calc_position_embeddings: Understood[Bool] = None
    use_liger_loss: Understood[Bool] = None
    use_liger_kernel: Understood[Bool] = None
    use_mamba_kernels: Understood[Bool] = None
    cast_logprobs_to_fp32: Understood[Bool] = None
    quantization: Annotated[
        str | dict[str, JsonValue] | None, Only(None, why="quantised base models have no room yet")
    ] = None
    activation_offload: Understood[Bool] = None
    moe_lora_recompute: Understood[Bool] = None
    use_sequence_packing: Annotated[
        Bool | None, NotActedOn("groups are always packed where the model allows it")
    ] = None
    lora_target_scope: Understood[str] = None
    chunk_rows: Understood[Annotated[Int, Field(ge=1)]] = None
    attn_implementation: Understood[str] = None
    micro_batch_size_per_gpu: Understood[Annotated[Int, Field(ge=1)]] = None
    mini_batch_size: Understood[Annotated[Int, Field(ge=1)]] = None
    hf_generate_chunk_size: Understood[Annotated[Int, Field(ge=1)]] = None
    thinking_token_budget: Understood[Annotated[Int, Field(ge=0)]] = None
    constrain_answer_pattern: Understood[str] = None
    answer_continuation: Understood[Bool] = None
    fsdp: Understood[Bool | Fsdp] = None
    vllm_engine_args: Understood[dict[str, JsonValue]] = None
    vllm_lora_export_dir: Understood[str] = None
    vllm_config: Understood[VllmConfig] = None
    # the dialects of the 2.8 and 2.9 clients
    use_vllm: Annotated[Bool | None, NotActedOn("the server chooses the engine by the machine")] = None
    reduce_memory_peak: Understood[Bool] = None
    action_granularity: Understood[str] = None


class RolloutKnobs(TextKnobs):
    """Knobs of the algorithms that generate completions and score them."""

    beta: Annotated[Float, Field(ge=0, le=1)] = 0.001
    temperature: Annotated[Float, Field(gt=0)] = 0.9
    max_output_tokens: Annotated[Int, Field(ge=1)] | None = None

    repetition_penalty: Annotated[Float | None, Field(ge=0), Only(1.0, why=_WHOLE_VOCABULARY)] = None
    top_p: Annotated[Float | None, Field(ge=0, le=1), Only(1.0, why=_WHOLE_VOCABULARY)] = None
    top_k: Annotated[Int | None, Field(ge=0), Only(0, why=_WHOLE_VOCABULARY)] = None
    min_p: Annotated[Float | None, Field(ge=0, le=1), Only(0.0, why=_WHOLE_VOCABULARY)] = None
    max_row_tokens: Understood[Annotated[Int, Field(ge=1)]] = None
    min_output_tokens: Understood[Annotated[Int, Field(ge=0)]] = None
    cosine_lr_schedule_config: Understood[CosineSchedule] = None
    vllm_importance_sampling_correction: Annotated[Bool | None, UnlessWritten] = None
    """whether the policy term is weighed by trainer over engine probability; true unless written"""
    vllm_importance_sampling_cap: Annotated[Float | None, Field(ge=0), UnlessWritten] = None
    """the largest such weight; 2 unless written"""
    vllm_max_logprob_gap: Understood[Annotated[Float, Field(ge=0)]] = None
    vllm_max_clip_fraction: Understood[Annotated[Float, Field(ge=0, le=1)]] = None


class GroupKnobs(RolloutKnobs):
    """Knobs of the GRPO family: one loss (training.md §6), of which GRPO, GSPO, CISPO, DAPO and Dr.GRPO are presets.

    `batch_size` counts prompts per iteration of a member.
    """

    MATHS: ClassVar[str] = "grpo"
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

    group_size: Annotated[Int, Field(ge=2)] = 8
    """completions per prompt; one alone would have no mean to be compared with"""
    lr: Annotated[Float, Field(ge=0)] = 5e-7
    clip_coef: Annotated[Float, Field(ge=0, le=1)] = 0.2
    clip_coef_high: Annotated[Float, Field(ge=0)] | None = None
    """upper clip when it differs from `clip_coef` (clip higher; older manifests write a list of two); of cispo the cap"""
    normalization: Literal["sequence", "token", "constant"] = "sequence"
    """how token losses become one number: mean of sequence means, token mean, or by a constant length"""
    adv_norm: Literal["mean_std", "mean_only"] = "mean_std"
    kl_estimator: Literal["k3_is", "k3", "k2", "k1_reward"] = "k3_is"
    """how `beta` weighs the distance to the reference; `use_bias_correction_kl` chooses k3_is or k3"""

    loss_type: Annotated[Literal["grpo", "gspo", "cispo"] | None, UnlessWritten] = None
    """`grpo` and `gspo` clip the ratio, `cispo` weighs log-probabilities by a ratio capped at `clip_coef_high`"""
    importance_sampling_level: Annotated[Literal["token", "turn", "trajectory"] | None, UnlessWritten] = None
    """what has one ratio: a token, or a whole completion (a dataset row has one turn)"""
    filter_zero_adv: Annotated[Bool | None, UnlessWritten] = None
    """drop groups of equal rewards and draw prompts in their place, at most two batches more"""
    overlong_buffer: Annotated[Float | None, Field(ge=0, le=1), UnlessWritten] = None
    """share of the longest completion at its end over which training rewards sink by up to 1"""
    use_kl_advantage_shaping: Annotated[Bool | None, Only(False, why="write kl_estimator: k1_reward")] = None
    advantage_granularity: Understood[Literal["auto", "trajectory", "turn"]] = None
    whiten_advantages: Understood[Bool] = None
    adv_clip_range: Understood[Float] = None
    adv_filter_eps: Understood[Annotated[Float, Field(ge=0)]] = None
    turn_advantage_trajectory_fallback: Understood[Bool] = None
    loss_norm: Understood[Literal["micro_batch", "accumulation_window", "episode"]] = None
    old_logprobs_source: Annotated[Literal["trainer", "rollout"] | None, _OLD_LOGPROBS] = None
    off_policy_token_mask_bounds: Understood[tuple[Float, Float]] = None
    off_policy_sequence_mask_threshold: Understood[Annotated[Float, Field(ge=0)]] = None
    kl_clamp: Understood[Annotated[Float, Field(gt=0)]] = None
    profiling_config: Understood[Profiling] = None
