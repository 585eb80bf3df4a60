"""The `environment` section: one class for text, one for each classic kind.

For text the section says how rows become prompts. Which rows and which reward is the experiment's choice
(DESIGN §6); the names written here are its defaults.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Section, Understood
from arena_gitops.spec.understood import EnvService

_BY_DATASET = NotActedOn("the Dataset's column_mapping names the columns")
_BY_ROWS = NotActedOn("training.eval_rows and training.test_rows cut the splits")
_MULTI_TURN = "multi-turn environments have no room yet"
_TURN_KEY = re.compile(r"(system|user|assistant)_[0-9]+")
_PLACEHOLDER = re.compile(r"(?<![\\\w^}\]${])\{([A-Za-z_]\w*)\}(?!\})")
"""A word alone in braces; `\\boxed{x}`, `x_{i}`, `${HOME}` and `{{x}}` are formulas and code, and stay as they are."""

Source = Annotated[str | None, Only(None, why=_MULTI_TURN)]
Positive = Annotated[Int, Field(ge=1)]


def _turns(template: dict[str, str]) -> dict[str, str]:
    for key in template:
        if not _TURN_KEY.fullmatch(key):
            raise ValueError(f"key {key!r}: expected system_N, user_N or assistant_N, N giving the order")
    order = sorted(template, key=lambda key: int(key.rsplit("_", 1)[1]))
    return {key: template[key] for key in order}


PromptTemplate = Annotated[dict[str, str], AfterValidator(_turns)]
"""`{system_0, user_1, assistant_2}`: turns in the order of their numbers, with `{question}` and the like."""


def unfilled(template: Mapping[str, str], columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """Turn and word of every `{word}` that the model would see as it stands: no column of the rows has that name."""
    for turn, text in template.items():
        words = dict.fromkeys(_PLACEHOLDER.findall(text))
        yield from ((turn, word) for word in words if word not in columns)


class TextEnvironment(Section):
    """Rows that become prompts (`rollout`), or rows that are learned as they are (`dataset`)."""

    env_type: Literal["rollout", "dataset"]
    objective: Literal["preference", "sft"] | None = None
    name: str | None = None
    dataset: str | None = None
    dataset_path: str | None = None
    hf_dataset_id: str | None = None
    prompt_template: PromptTemplate | None = None
    reward_file_path: str | None = None
    reward_fn_name: Annotated[str, Field(min_length=1)] | None = None

    # sources that have no room yet
    entrypoint: Source = None
    env_name: Source = None
    env_url: Annotated[str | tuple[str, ...] | None, Only(None, why=_MULTI_TURN)] = None
    env_image: Source = None
    env_packages: Annotated[dict[str, JsonValue] | None, Only(None, why=_MULTI_TURN)] = None
    max_turns: Annotated[Int | None, Field(ge=1), Only(1, why=_MULTI_TURN)] = None

    num_envs: Understood[Positive] = None
    version: Understood[str | Int] = None
    columns: Annotated[dict[str, str] | None, _BY_DATASET] = None
    response_column: Annotated[str | None, _BY_DATASET] = None
    max_reward: Understood[Float] = None
    min_reward: Understood[Float] = None
    train_test_split: Annotated[Float | None, Field(ge=0, le=1), _BY_ROWS] = None
    factory: Understood[str] = None
    env_config: Understood[dict[str, JsonValue]] = None
    segment_prompt_tokens: Understood[Positive] = None
    segment_max_images: Understood[Positive] = None
    restart_keep_turns: Understood[Annotated[Int, Field(ge=0)]] = None
    restart_older_obs_field: Understood[str] = None
    restart_older_images: Understood[Bool] = None
    action_error_field: Understood[str] = None
    strict_chat_template_boundary: Understood[Bool] = None
    observation_field: Understood[str] = None
    observation_processor: Understood[str] = None
    action_processor: Understood[str] = None
    screenshot_field: Understood[str] = None
    goal_images_field: Understood[str] = None
    answer_tool: Understood[str] = None
    action_field: Understood[str] = None
    request_timeout_s: Understood[Annotated[Float, Field(ge=0)]] = None
    max_concurrent_resets: Understood[Positive] = None
    adaptive_task_sampling: Understood[Bool] = None
    task_family_field: Understood[str] = None
    task_family_prior_strength: Understood[Annotated[Float, Field(gt=0)]] = None
    env_hosts: Understood[Positive] = None
    env_port: Understood[Annotated[Int, Field(ge=1, le=65535)]] = None
    env_sessions_per_host: Understood[Positive] = None
    env_session_ports: Understood[dict[str, Int]] = None
    cpus_per_env_host: Understood[Annotated[Float, Field(gt=0)]] = None
    env_host_memory_bytes: Understood[Positive] = None
    env_host_memory_limit_bytes: Understood[Positive] = None
    env_host_ready_timeout_s: Understood[Annotated[Float, Field(gt=0)]] = None
    env_services: Understood[tuple[EnvService, ...]] = None
    env_host_resource: Understood[str] = None
    env_vars: Understood[dict[str, str]] = None
    chat_template_kwargs: Understood[dict[str, JsonValue]] = None
    chat_template_path: Understood[str] = None
    apply_chat_template: Understood[Bool] = None


class GymEnvironment(Section):
    """A registered Gymnasium id, or a custom environment by entry point."""

    env_type: Literal["gym"]
    name: Annotated[str, Field(min_length=1)]
    num_envs: Positive = 32
    version: str | Int | None = None
    custom: Bool = False
    default_type: Annotated[str | None, Only("float32", why="policies are trained in float32")] = None
    entrypoint: str | None = None
    factory: str | None = None
    path: str | None = None
    env_config: dict[str, JsonValue] | str | None = None
    """what the environment's constructor is given"""
    env_wrappers: Annotated[
        tuple[str | tuple[str, dict[str, JsonValue]], ...] | None, Only(None, why="wrappers have no room yet")
    ] = None
    sync: Annotated[Bool | None, NotActedOn("environments are stepped where that is cheapest")] = None


class OfflineEnvironment(GymEnvironment):
    """A recorded dataset of an environment."""

    env_type: Literal["offline"]  # type: ignore[assignment]  # the tag of the union
    minari_dataset_id: str | None = None
    dataset_path: str | None = None
    remote: Bool = False


class BanditEnvironment(Section):
    """Features and targets of a contextual bandit."""

    env_type: Literal["bandit"]
    name: str = "BanditEnv"
    num_envs: Positive = 1
    version: str | Int | None = None
    features: str | None = None
    targets: str | None = None
    entrypoint: str | None = None
    path: str | None = None
    env_config: dict[str, JsonValue] | None = None


Environment = TextEnvironment | GymEnvironment | OfflineEnvironment | BanditEnvironment

ENVIRONMENTS: dict[str, type[Environment]] = {
    "rollout": TextEnvironment,
    "dataset": TextEnvironment,
    "gym": GymEnvironment,
    "offline": OfflineEnvironment,
    "bandit": BanditEnvironment,
}
"""`env_type` → its class."""
