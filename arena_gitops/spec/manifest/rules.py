"""Rules across sections: what single fields cannot say. Each rule yields the problems it finds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from arena_gitops.errors import Problem
from arena_gitops.spec.knobs import GroupKnobs, Knobs, RolloutKnobs, TextKnobs
from arena_gitops.spec.manifest.environment import GymEnvironment, TextEnvironment
from arena_gitops.spec.manifest.model import Manifest
from arena_gitops.spec.manifest.sections import TextNetwork
from arena_gitops.spec.population import MultiFrequency, Range
from arena_gitops.spec.problems import suggestion

_ROWS = ("dataset", "dataset_path", "hf_dataset_id")
_SOURCES = ("entrypoint", "env_name", "env_url", "env_image")


def broken(manifest: Manifest) -> Iterator[Problem]:
    """Every broken rule, canonical paths."""
    for rule in (
        _training,
        _text_knobs,
        _context,
        _text_environment,
        _gym,
        _subpopulations,
        _ranges,
    ):
        yield from rule(manifest)


def _problem(path: str, message: str, hint: str = "") -> Problem:
    return Problem(tuple(path.split(".")), message, "broken-rule", hint)


def _training(manifest: Manifest) -> Iterator[Problem]:
    training = manifest.training
    if training.evo_steps > training.max_steps:
        yield _problem(
            "training.evo_steps", f"evo_steps ({training.evo_steps}) exceeds max_steps ({training.max_steps})"
        )
    if training.evo_epochs is not None and training.num_epochs is None:
        yield _problem("training.evo_epochs", "evo_epochs needs num_epochs")
    if (
        training.eps_start is not None
        and training.eps_end is not None
        and training.eps_start < training.eps_end
    ):
        yield _problem("training.eps_start", "eps_start is below eps_end")
    if training.eval_greedy is False and not training.eval_samples_per_task:
        yield _problem("training.eval_greedy", "eval_greedy: false needs eval_samples_per_task ≥ 1")


def _text_knobs(manifest: Manifest) -> Iterator[Problem]:
    knobs = manifest.algorithm
    if not isinstance(knobs, TextKnobs):
        return
    mini, micro = knobs.mini_batch_size, knobs.micro_batch_size_per_gpu
    if mini is not None and micro is not None and mini % micro:
        yield _problem(
            "algorithm.mini_batch_size",
            f"mini_batch_size ({mini}) is not a multiple of micro_batch_size_per_gpu ({micro})",
        )
    if knobs.answer_continuation and knobs.constrain_answer_pattern is None:
        yield _problem("algorithm.answer_continuation", "answer_continuation needs constrain_answer_pattern")
    if isinstance(knobs, RolloutKnobs) and knobs.thinking_token_budget is not None:
        limit = knobs.max_output_tokens
        if limit is None or knobs.thinking_token_budget >= limit:
            yield _problem(
                "algorithm.thinking_token_budget", "thinking_token_budget must be below max_output_tokens"
            )


def _context(manifest: Manifest) -> Iterator[Problem]:
    knobs, network = manifest.algorithm, manifest.network
    if not isinstance(knobs, RolloutKnobs) or not isinstance(network, TextNetwork):
        return
    limit = knobs.max_output_tokens
    if limit is None and isinstance(knobs, GroupKnobs) and knobs.normalization == "constant":
        yield _problem(
            "algorithm.normalization", "normalization: constant divides by max_output_tokens; set it"
        )
    if limit is not None and limit >= network.max_context_length:
        yield _problem(
            "algorithm.max_output_tokens",
            f"max_output_tokens ({limit}) leaves no room for a prompt in max_context_length "
            f"({network.max_context_length})",
        )


def _text_environment(manifest: Manifest) -> Iterator[Problem]:
    environment = manifest.environment
    if not isinstance(environment, TextEnvironment):
        return
    rows = [name for name in _ROWS if getattr(environment, name) is not None]
    sources = [name for name in _SOURCES if getattr(environment, name) is not None]
    if rows and sources:
        yield _problem(
            f"environment.{sources[0]}", f"{sources[0]} and {rows[0]} are two sources of rollouts; keep one"
        )
    if environment.env_type == "rollout":
        if sources and environment.reward_file_path is not None:
            yield _problem("environment.reward_file_path", "a reward file scores dataset rows only")
        return
    for name in ("reward_file_path", "reward_fn_name", *_SOURCES):
        if getattr(environment, name) is not None:
            yield _problem(
                f"environment.{name}", f"{manifest.algorithm.name} learns rows as they are: no {name}"
            )


def _gym(manifest: Manifest) -> Iterator[Problem]:
    environment = manifest.environment
    if isinstance(environment, GymEnvironment) and environment.factory and not environment.entrypoint:
        yield _problem("environment.factory", "factory needs entrypoint")


def _subpopulations(manifest: Manifest) -> Iterator[Problem]:
    selection, size = manifest.selection, manifest.training.pop_size
    if not isinstance(selection, MultiFrequency):
        return
    parts = selection.n_subpopulations
    if size < 6 or size % parts or size // parts < 3:
        yield _problem(
            "training.pop_size",
            f"multi_frequency needs a pop_size ≥ 6 of {parts} equal parts of at least 3, got {size}",
        )
    ratios = selection.evolution_frequency_ratios or ()
    if list(ratios) != sorted(set(ratios)):
        yield _problem("selection.evolution_frequency_ratios", "ratios must increase strictly")


def _ranges(manifest: Manifest) -> Iterator[Problem]:
    knobs = manifest.algorithm
    if not isinstance(knobs, Knobs):
        return
    for name, bounds in manifest.mutation.rl_hp_selection.items():
        path = f"mutation.rl_hp_selection.{name}"
        if name not in knobs.MUTABLE:
            what = "cannot be mutated" if name in type(knobs).model_fields else "is not a field"
            yield _problem(path, f"{name!r} {what} of {knobs.name}", suggestion(name, knobs.MUTABLE))
            continue
        yield from _range(path, knobs, name, bounds)


def _range(path: str, knobs: Knobs, name: str, bounds: Range) -> Iterator[Problem]:
    start = getattr(knobs, name)
    if not bounds.min <= start <= bounds.max:
        yield _problem(
            path,
            f"{name} starts at {start:g}, outside [{bounds.min:g}, {bounds.max:g}]",
            f"change algorithm.{name} or the range",
        )
    for end, value in (("min", bounds.min), ("max", bounds.max)):
        if not _possible(type(knobs), knobs.name, name, value):
            yield _problem(f"{path}.{end}", f"{value:g} is not a value {name} may have")


@lru_cache(maxsize=1 << 10)
def _possible(knobs: type[Knobs], algorithm: str, name: str, value: float) -> bool:
    values: dict[str, Any] = {"name": algorithm, name: value}
    try:
        knobs.model_validate(values)
    except ValidationError:
        return False
    return True
