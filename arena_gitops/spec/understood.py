"""Published mappings that are checked, kept, and have no effect here: engines, sharding, profiling.

They describe another trainer's machinery. Ours chooses engine and placement by the machine it finds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.resource import Frozen

Positive = Annotated[Int, Field(ge=1)]
NotNegative = Annotated[Int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]


class _AsWritten(Frozen):
    """Absent values stay absent, so that the normal form holds what the author wrote."""

    model_config = ConfigDict(defer_build=True)

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = handler(self)
        return {key: value for key, value in dumped.items() if value is not None}


class VllmConfig(_AsWritten):
    """`algorithm.vllm_config`."""

    tensor_parallel_size: Positive | None = None
    gpu_memory_utilization: Annotated[Float, Field(ge=0, le=1)] | None = None
    max_num_seqs: Positive | None = None
    max_num_batched_tokens: Positive | None = None
    enforce_eager: Bool | None = None
    sleep_mode: Bool | None = None
    sleep_mode_level: Literal[1, 2] | None = None
    dtype: Text | None = None
    quantization: Text | None = None
    vllm_model_name_or_path: Text | None = None
    kv_cache_dtype: Text | None = None
    max_lora_rank: Positive | None = None
    max_loras: Positive | None = None
    strip_multimodal_towers: Bool | tuple[Literal["image", "video", "audio"], ...] | None = None
    stop_sequences: tuple[str, ...] | None = None
    presence_penalty: Annotated[Float, Field(ge=0)] | None = None
    frequency_penalty: Annotated[Float, Field(ge=0)] | None = None
    kv_cache_memory_bytes: NotNegative | None = None
    limit_mm_per_prompt: dict[str, Int] | None = None
    lora_staging_dir: Text | None = None


class CosineSchedule(_AsWritten):
    """`algorithm.cosine_lr_schedule_config`."""

    num_steps: Positive
    warmup_proportion: Annotated[Float, Field(ge=0, lt=1)] | None = None
    min_lr_ratio: Annotated[Float, Field(ge=0, le=1)] | None = None


class Fsdp(_AsWritten):
    """`algorithm.fsdp`."""

    reshard_after_forward: Bool | None = None
    cpu_offload: Bool | None = None
    optim_cpu_offload: Bool | None = None
    defer_grad_sync: Bool | None = None
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    prefetch_units: Positive | None = None
    backward_prefetch_units: Positive | None = None
    checkpoint_skip_layer_types: tuple[str, ...] | None = None
    checkpoint_every_n_blocks: Positive | None = None
    wrap_every_n_blocks: Positive | None = None
    param_persistence_threshold: NotNegative | None = None
    ep: Positive | None = None
    ep_token_blocks: Positive | None = None
    routed_expert_chunk_mib: Positive | None = None
    tp: Positive | None = None
    shard_group_size: Positive | None = None


class Profiling(_AsWritten):
    """`algorithm.profiling_config`."""

    output_dir: str | None = None
    memory_snapshot_on_oom: Bool | None = None
    memory_history_max_entries: Positive | None = None
    torch_profile_step: Positive | None = None
    torch_profile_with_stack: Bool | None = None
    profile_ranks: tuple[Int, ...] | None = None


class CheckpointExport(_AsWritten):
    """`training.checkpoint_export`."""

    format: Literal["adapter", "merged"] | None = None
    trigger: Literal["final", "best", "on_demand", "every"] | None = None


class NetworkRanges(_AsWritten):
    """`mutation.network`."""

    min_latent_dim: Positive | None = None
    max_latent_dim: Annotated[Int, Field(gt=1)] | None = None
    encoder: dict[str, JsonValue] | None = None
    head_net: dict[str, JsonValue] | None = None


_POD_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
Port = Annotated[Int, Field(ge=1, le=65535)]


class EnvContainer(_AsWritten):
    """`environment.env_services[].containers[]`."""

    name: Annotated[str, Field(pattern=_POD_NAME, max_length=40)]
    image: str
    command: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    port: Port | None = None
    setup_command: tuple[str, ...] | None = None
    readiness_command: tuple[str, ...] | None = None
    readiness_path: str | None = None
    cpu: str | None = None
    memory: str | None = None
    memory_limit: str | None = None
    ephemeral_storage: str | None = None
    memory_rootfs: str | None = None


class EnvService(_AsWritten):
    """`environment.env_services[]`."""

    name: Annotated[str, Field(pattern=_POD_NAME, max_length=30)]
    port: Port
    url_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    containers: Annotated[tuple[EnvContainer, ...], Field(min_length=1)]
    ready_timeout_s: Annotated[Float, Field(gt=0)] | None = None
