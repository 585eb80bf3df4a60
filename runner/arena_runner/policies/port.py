"""The port of classic RL: what one file of maths in `algorithms/` offers, and what it is given.

An algorithm is a module (or any object) with these names; nothing is registered. A new one is two files: its knobs
in `arena_gitops/spec/algorithms/<name>.py` (a `ClassicKnobs`), its maths in `arena_runner/algorithms/<name>.py`:

    LEARNS = "replay" | "rollout"          what the loop collects for it
    TWINS = {"q_target": "q"}              networks that follow others; never trained by gradient
    networks(body, does, knobs)            the designs of its trained networks, by role
    greedy(group, seen, memory)            what its members do when they are judged or served
    explore(group, seen, dice, memory)     what they do while they learn
    update(group, batch)                   one optimizer step of every member of the group

and, for `rollout`, `value(group, seen, memory)`; for `replay`, where an update itself draws, `draws(does)`, how many
normal numbers a row of a batch brings along, and `shakes(group)`, how many all rows of a member share. An algorithm
whose knobs have `n_step` gets what that many steps lead to; one with `PRIORITISED = True` gets rows by priority and
says in the figure `priority` (N, B) what they count from now on. An algorithm with `MANY = True` trains several
agents: its `networks(bodies, crowd, knobs)` names roles `agent/role`, and rewards have a last axis of agents
(`policies.crowd` takes steps apart). Conventions, which make it the same for one member and for many:

* Every tensor leads with the members: observations (N, B, …), actions (N, B, k), rewards (N, B). No operation may
  mix members; a loss is the *sum* over members of each member's own mean (`Batch.mean`), so gradients stay apart.
* Randomness comes from the `Dice` that is handed in, one stream per place, never from torch's generator.
* Knobs are columns (N,) by `group.of("lr")`; members of a group may differ in every mutable one. Rows of a batch
  beyond a member's own `batch_size` have weight 0.
* Nothing is kept between calls but the networks; what an episode must remember (LSTM state, correlated noise) goes
  through `Acted.memory`, a mapping of tensors (N, B, …) that the loop clears where an episode ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from arena_gitops.spec.knobs import Knobs
from arena_runner.policies.design import Design
from arena_runner.policies.group import Group
from arena_runner.policies.spaces import Choice, Continuous

Seen = Mapping[str, Tensor]
"""part name → (N, B, …)"""
Memory = Mapping[str, Tensor]

MASK = "action_mask"
"""a part of this name says which discrete actions are allowed, and enters no network"""


@dataclass(frozen=True, slots=True)
class Acted:
    """What members do now."""

    actions: Tensor
    """(N, B, k): numbers of choices (int64) or floats"""
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    """what a rollout stores beside it: log-probability, value …"""
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """Transitions for one update: replayed, or a minibatch of a rollout."""

    seen: Seen
    actions: Tensor
    """(N, B, k)"""
    weight: Tensor
    """(N, B): each member's rows sum to one"""
    reward: Tensor | None = None
    after: Seen | None = None
    over: Tensor | None = None
    """1.0 where the episode terminated: there is no value after it"""
    discount: Tensor | None = None
    """(N, B): what the value after `after` counts, gamma to the number of steps"""
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    """rollouts: `log_prob`, `value`, `advantage`, `returns` …; replay: importance weights"""
    noise: Tensor | None = None
    """(N, B, draws): standard normal numbers, where the algorithm's `draws(does)` asks for some"""
    shake: Tensor | None = None
    """(N, 1, shakes): as many for all rows of a member, where `shakes(group)` asks for some"""
    near: Batch | None = None
    """the same rows with what one step led to, where the knob `combined_reward` asks for it"""

    def of(self, rows: Sequence[int]) -> Batch:
        """The batch of some members; itself when it is all of them."""
        if len(rows) == len(self.weight):
            return self
        index = list(rows)

        def cut(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: value[index] for name, value in values.items()}

        return Batch(
            seen=cut(self.seen),
            actions=self.actions[index],
            weight=self.weight[index],
            reward=None if self.reward is None else self.reward[index],
            after=None if self.after is None else cut(self.after),
            over=None if self.over is None else self.over[index],
            discount=None if self.discount is None else self.discount[index],
            kept=cut(self.kept),
            noise=None if self.noise is None else self.noise[index],
            shake=None if self.shake is None else self.shake[index],
            near=None if self.near is None else self.near.of(rows),
        )

    def mean(self, values: Tensor) -> Tensor:
        """Each member's own mean over its rows: (N, B) → (N,)."""
        return (values * self.weight).sum(-1)


class Dice:
    """Randomness of some places: one stream each, so that nobody's draw depends on who else draws."""

    def __init__(self, streams: Sequence[np.random.Generator], rows: int, *, explored: int) -> None:
        self._streams, self.rows = streams, rows
        self.explored = explored
        """vector steps each place has taken before this one"""

    def uniform(self, *shape: int) -> Tensor:
        """Floats in [0, 1): (N, B, *shape)."""
        return _stacked([one.random((self.rows, *shape), dtype=np.float32) for one in self._streams])

    def normal(self, *shape: int) -> Tensor:
        """Standard normal floats: (N, B, *shape)."""
        drawn = [one.standard_normal((self.rows, *shape), dtype=np.float32) for one in self._streams]
        return _stacked(drawn)


def _stacked(drawn: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> Tensor:
    return torch.from_numpy(np.stack(drawn))


class Algorithm(Protocol):
    """One file of maths; see the module's docstring."""

    LEARNS: Literal["replay", "rollout"]
    TWINS: Mapping[str, str]

    def networks(self, body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
        """Must name every trained network; SpaceError for actions it cannot take."""
        ...

    def greedy(self, group: Group, seen: Seen, memory: Memory) -> Acted:
        """Must depend on weights, observation and memory only."""
        ...

    def explore(self, group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
        """May draw from `dice` only."""
        ...

    def update(self, group: Group, batch: Batch) -> dict[str, Tensor]:
        """One step of every member of the group; figures (N,) each, detached."""
        ...


def allowed(scores: Tensor, seen: Seen) -> Tensor:
    """Scores of discrete actions with those that are not allowed sunk; unchanged where there is no mask."""
    mask = seen.get(MASK)
    return scores if mask is None else scores.masked_fill(mask < 0.5, torch.finfo(scores.dtype).min)
