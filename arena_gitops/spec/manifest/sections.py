"""The sections every manifest may have beside algorithm, environment, mutation and selection."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Section, Understood, UnlessWritten
from arena_gitops.spec.understood import CheckpointExport

Positive = Annotated[Int, Field(ge=1)]
_SYNCHRONOUS = "asynchronous rollouts have no room yet"


class Training(Section):
    """How long to train, how often to evaluate and evolve. Units: training.md §4."""

    max_steps: Positive = 1_000_000
    """budget of each member: for text completions scored, for SFT rows"""
    evo_steps: Positive
    """length of a generation; for text iterations"""
    pop_size: Positive = 1
    eval_loop: Positive = 1
    """k evaluates on k times `eval_rows`"""
    hpo: Bool
    target_score: Float | None = None
    checkpoint_steps: Positive | None = None
    evaluation_interval: Positive
    """in units of `evo_steps`; when it is not written, once a generation"""
    num_epochs: Positive | None = None
    eval_rows: Positive = 64
    """rows of the split that decides fitness"""
    test_rows: Annotated[Int, Field(ge=0)] = 128
    """rows of the split used by neither training nor selection"""

    name: Understood[str] = None
    eval_steps: Understood[Positive] = None
    learning_delay: Understood[Annotated[Int, Field(ge=0)]] = None
    eps_start: Understood[Float] = None
    eps_end: Understood[Float] = None
    eps_decay: Understood[Float] = None
    checkpoint_path: Annotated[str | None, NotActedOn("checkpoints live in the server's store")] = None
    overwrite_checkpoints: Understood[Bool] = None
    checkpoint_optimizer: Understood[Bool] = None
    eval_samples_per_task: Understood[Annotated[Int, Field(ge=0)]] = None
    eval_greedy: Annotated[Bool | None, Only(True, why="evaluation is greedy")] = None
    eval_max_concurrent_episodes: Understood[Positive] = None
    evo_epochs: Understood[Positive] = None
    max_wall_seconds: Annotated[
        Float | None, Field(gt=0), NotActedOn("the experiment's budget.max_runtime limits time")
    ] = None
    episode_steps: Understood[Positive] = None
    sum_scores: Understood[Bool] = None
    reporting_interval: Understood[Positive] = None
    experience_sharing: Understood[Bool] = None
    env_resource_ratio: Understood[Annotated[Float, Field(gt=0, le=1)]] = None
    rollout_mode: Annotated[Literal["colocated", "async"] | None, Only("colocated", why=_SYNCHRONOUS)] = None
    rollout_batch_size: Understood[Positive] = None
    rollout_engines_per_agent: Understood[Int | Literal["auto"]] = None
    training_gpus_per_agent: Understood[Positive] = None
    weight_sync_backend: Understood[Literal["filesystem", "nccl"]] = None
    reuse_prefix_cache_across_syncs: Understood[Bool] = None
    weight_sync_interval: Understood[Positive] = None
    rollout_version_stamp: Understood[Literal["publish", "oldest_turn"]] = None
    checkpoint_export: Understood[CheckpointExport] = None


class ClassicTraining(Training):
    """Training of a policy in an environment: every count of steps is of environment steps of one member."""

    learning_delay: Annotated[Int, Field(ge=0)] = 0
    """environment steps before the first update; actions that are floats are drawn at random until then"""
    eps_start: Annotated[Float, Field(ge=0, le=1)] = 1.0
    """share of random actions at the start, for algorithms that choose among actions"""
    eps_end: Annotated[Float, Field(ge=0, le=1)] = 0.1
    eps_decay: Annotated[Float, Field(ge=0, le=1)] = 0.995
    """factor of that share after each step of all environments"""
    eval_steps: Positive | None = None
    """longest evaluation episode; absent: the environment's own limit"""
    eval_episodes: Positive = 8
    """whole episodes that decide fitness, the same for all members; `eval_loop` multiplies them"""
    test_episodes: Annotated[Int, Field(ge=0)] = 100
    """episodes that neither training nor selection has seen, for base and best at the end"""

    experience_sharing: Annotated[Bool | None, UnlessWritten] = None
    """whether all members learn from one replay; true unless written"""

    num_epochs: Annotated[
        Positive | None, Only(None, why="an environment has no epochs: write training.max_steps")
    ] = None
    eval_rows: Understood[Positive] = None  # type: ignore[assignment]  # there are no rows here
    test_rows: Understood[Annotated[Int, Field(ge=0)]] = None  # type: ignore[assignment]  # as above


class NStep(Section):
    """`n_step_buffer_args`."""

    n_step: Positive = 3


class Prioritised(Section):
    """`per_buffer_args`."""

    alpha: Annotated[Float, Field(ge=0, le=1)] = 0.5


class ReplayBuffer(Section):
    """The replay buffer of an off-policy algorithm."""

    kind: Literal["classic"] = "classic"
    name: str | None = None
    max_size: Positive = 100_000
    standard_buffer: Annotated[Bool | None, Only(True, why="there is one kind of replay")] = None
    n_step_buffer: Annotated[Bool | None, Only(False, why="only Rainbow DQN looks several steps ahead")] = (
        None
    )
    n_step_buffer_args: Understood[NStep] = None
    per_buffer: Annotated[Bool | None, Only(False, why="only Rainbow DQN replays by priority")] = None
    per_buffer_args: Understood[Prioritised] = None


class PrioritisedReplay(ReplayBuffer):
    """The replay buffer of Rainbow DQN."""

    standard_buffer: Annotated[Bool | None, NotActedOn("it is one buffer with priorities")] = None
    n_step_buffer: Annotated[Bool | None, Only(True, why="algorithm.n_step: 1 looks one step ahead")] = None
    n_step_buffer_args: Annotated[NStep | None, NotActedOn("algorithm.n_step says how many")] = None
    per_buffer: Annotated[Bool | None, Only(True, why="Rainbow DQN replays by priority")] = None
    per_buffer_args: Annotated[Prioritised | None, UnlessWritten] = None
    """`alpha` says how much a large error counts; 0.5 unless written"""


class RolloutBuffer(Section):
    """The buffer between generation and training of an asynchronous text run."""

    kind: Annotated[Literal["llm"], Only(why=_SYNCHRONOUS)] = "llm"
    name: Understood[str] = None
    max_size: Positive = 10_000
    max_rollout_version_lag: Understood[Annotated[Int, Field(ge=0)]] = None
    drop_uninformative_groups: Understood[Bool] = None
    group_replay_max_age: Understood[Annotated[Int, Field(ge=0)]] = None


Buffer = SerializeAsAny[ReplayBuffer] | RolloutBuffer


class Lora(Section):
    """`lora_config`: rank, scale and targets of every member's adapter."""

    lora_r: Positive = 16
    lora_alpha: Positive = 32
    target_modules: tuple[str, ...] | str = "all-linear"
    lora_dropout: Annotated[Float, Field(ge=0, le=1)] = 0.05
    task_type: Annotated[str, Field(min_length=1)] = "CAUSAL_LM"

    target_parameters: Annotated[
        tuple[str, ...] | None, Only(None, why="adapters on bare parameters have no room yet")
    ] = None


class TextNetwork(Section):
    """The base model and its adapters."""

    pretrained_model_name_or_path: Annotated[str, Field(min_length=1)]
    max_context_length: Positive
    """tokens of prompt and completion together"""
    lora_config: Lora = Lora()
