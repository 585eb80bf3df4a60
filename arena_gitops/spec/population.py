"""How a population evolves, as a manifest writes it: mutation, selection, the ranges of mutable values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Section, Understood
from arena_gitops.spec.understood import NetworkRanges

Weight = Annotated[Float, Field(ge=0, le=1)]
_TEXT = NotActedOn("text training mutates hyperparameters only")


class Range(Section):
    """Where a hyperparameter may wander, and how far one mutation moves it."""

    min: Float
    max: Float
    grow_factor: Annotated[Float, Field(ge=1)] = 1.2
    shrink_factor: Annotated[Float, Field(ge=0, le=1)] = 0.8

    @field_validator("max")
    @classmethod
    def _not_below_min(cls, value: float, info: ValidationInfo) -> float:
        low = info.data.get("min")
        if low is not None and value < low:
            raise ValueError(f"max ({value:g}) is below min ({low:g})")
        return value


class Probabilities(Section):
    """Weights of what a mutation does, normalised over what the algorithm can mutate."""

    no_mut: Weight = 0.4
    rl_hp_mut: Weight = 0.2

    arch_mut: Annotated[Weight | None, _TEXT] = None
    new_layer: Annotated[Weight | None, _TEXT] = None
    params_mut: Annotated[Weight | None, _TEXT] = None
    act_mut: Annotated[Weight | None, _TEXT] = None


NO_MUTATION = Probabilities(no_mut=1.0, rl_hp_mut=0.0)
"""What an absent or empty `mutation:` means."""


class Mutation(Section):
    """The `mutation` section."""

    probabilities: Probabilities = Probabilities()
    rl_hp_selection: dict[str, Range] = Field(default_factory=dict)
    rand_seed: Annotated[Int, Field(ge=0)] = 42
    """seeds the whole run: weights, prompts, sampling and evolution"""

    name: Understood[str] = None
    mutation_sd: Annotated[Float | None, Field(ge=0), _TEXT] = None
    network: Annotated[NetworkRanges | None, _TEXT] = None
    dormant_threshold: Annotated[Float | None, Field(ge=0), _TEXT] = None


class ClassicProbabilities(Probabilities):
    """Weights where networks may change too. `new_layer` is the share of layers among changes of architecture."""

    arch_mut: Weight = 0.2
    new_layer: Weight = 0.2
    params_mut: Weight = 0.2
    act_mut: Weight = 0.0


class ClassicMutation(Mutation):
    """The `mutation` section of an algorithm that trains small networks."""

    probabilities: ClassicProbabilities = ClassicProbabilities()
    mutation_sd: Annotated[Float, Field(ge=0)] = 0.1
    """standard deviation of what `params_mut` adds, relative to a weight"""
    network: Annotated[NetworkRanges | None, Only(None, why="write the ranges in the section 'network'")] = (
        None
    )

    dormant_threshold: Understood[Annotated[Float, Field(ge=0)]] = None


class Tournament(Section):
    """Selection by tournament: each place is offered the best of `tournament_size` drawn members."""

    strategy: Literal["tournament"] = "tournament"
    tournament_size: Annotated[Int, Field(ge=1)] = 2
    elitism: Bool = True

    name: Understood[str] = None


class MultiFrequency(Section):
    """Selection in subpopulations that evolve at different frequencies. Parses; has no room yet."""

    strategy: Literal["multi_frequency"] = "multi_frequency"
    n_subpopulations: Annotated[Int, Field(ge=2)] = 2
    n_winners: Annotated[Int, Field(ge=1)] | None = None
    n_survivors: Annotated[Int, Field(ge=0)] | None = None
    n_open_for_migration: Annotated[Int, Field(ge=1)] | None = None
    n_losers: Annotated[Int, Field(ge=1)] | None = None
    evolution_frequency_ratios: tuple[Int, ...] | None = None

    name: Understood[str] = None


Selection = Tournament | MultiFrequency
