"""What every algorithm's knobs share; `spec/algorithms/` has one file for each that has a room.

Field names and defaults are the published ones. A field without a mark is acted on by the loop; a test pins
the list, so that nothing is promised by accident.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, JsonValue, model_serializer, model_validator

from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Section, Understood
from arena_gitops.spec.understood import CosineSchedule, Fsdp, VllmConfig

_WHOLE_VOCABULARY = "training rollouts sample from the whole vocabulary at `temperature`"


class Knobs(Section):
    """The `algorithm` section. Subclasses pin `name` to their canonical name."""

    ALGORITHM: ClassVar[str] = ""
    MUTABLE: ClassVar[tuple[str, ...]] = ()
    """fields evolution may change; each has an effect in the loop from the next iteration on"""

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

    gradient_checkpointing: Understood[Bool] = None
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
    vllm_importance_sampling_correction: Understood[Bool] = None
    vllm_importance_sampling_cap: Understood[Annotated[Float, Field(ge=0)]] = None
    vllm_max_logprob_gap: Understood[Annotated[Float, Field(ge=0)]] = None
    vllm_max_clip_fraction: Understood[Annotated[Float, Field(ge=0, le=1)]] = None
