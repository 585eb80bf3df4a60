"""Members whose networks have equal designs: what the maths of an algorithm is given.

A group answers with stacks by role (`q`, `actor`, `critic`, and twins that follow them) and with knobs as columns
(N,), each member's own where evolution may change it. `subset` is the same for some of its members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest.sections import ClassicTraining
from arena_runner.policies.spaces import Crowd, Spaces
from arena_runner.policies.stack import Stack
from arena_runner.population.member import Hyperparameters


@dataclass(slots=True)
class Group:
    """Some places of a population, by row."""

    places: tuple[int, ...]
    nets: dict[str, Stack]
    knobs: Knobs
    training: ClassicTraining
    space: Spaces | Crowd
    own: Mapping[str, Tensor]
    """hyperparameters that evolution may change, (N,) each"""

    def __len__(self) -> int:
        return len(self.places)

    @property
    def spaces(self) -> Spaces:
        """What the only agent sees and does."""
        assert isinstance(self.space, Spaces)
        return self.space

    @property
    def crowd(self) -> Crowd:
        """What several agents see and do."""
        assert isinstance(self.space, Crowd)
        return self.space

    def agent(self, name: str) -> Group:
        """One of several agents with its own networks, the very ones: what it learns stays."""
        at = f"{name}/"
        nets = {role.removeprefix(at): net for role, net in self.nets.items() if role.startswith(at)}
        return Group(self.places, nets, self.knobs, self.training, self.crowd.agents[name], self.own)

    def of(self, name: str) -> Tensor:
        """A knob as a column (N,)."""
        found = self.own.get(name)
        return found if found is not None else torch.full((len(self),), float(getattr(self.knobs, name)))

    def fixed(self, name: str) -> Any:
        """A knob that is the same for all."""
        return getattr(self.knobs, name)

    def subset(self, rows: Sequence[int]) -> Group:
        """These rows, copied; give them back with `take_back`."""
        own = {name: column[list(rows)] for name, column in self.own.items()}
        nets = {role: stack.subset(rows) for role, stack in self.nets.items()}
        return Group(
            tuple(self.places[row] for row in rows), nets, self.knobs, self.training, self.space, own
        )

    def take_back(self, part: Group, rows: Sequence[int]) -> None:
        """What a subset has become."""
        for role, stack in self.nets.items():
            stack.take_back(part.nets[role], rows)


def columns(values: Sequence[Hyperparameters]) -> dict[str, Tensor]:
    """Members' hyperparameters as columns."""
    names = values[0].keys()
    return {name: torch.tensor([float(one[name]) for one in values]) for name in names}
