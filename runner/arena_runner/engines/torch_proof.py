"""The path half of the proof for the engine that samples in this process: probes lie in the members' places.

Its digest half is read before every batch by the engine itself (`reading.demand_lying`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from arena_runner.adapters import Population
from arena_runner.engines.base import Completion, Request
from arena_runner.engines.identity import Asked, Path, prove_path
from arena_runner.engines.plain import Adapter
from arena_runner.engines.torch import TorchEngine
from arena_runner.models import BaseModel

AT_ONCE = 8
"""probes that share a batch"""


def prove(base: BaseModel, population: Population, engine: TorchEngine) -> Path:
    """Raise PolicyMismatchError unless the engine answers as its adapters mean; the population is left as it was."""
    places = _Places(population, engine)
    with _borrowed(population, len(places.shapes)):
        return prove_path(base, places, [site.name for site in population.sites])


@dataclass(frozen=True, slots=True)
class _Places:
    """A name is a place of the population."""

    population: Population
    engine: TorchEngine
    named: dict[str, int] = field(default_factory=dict)

    @property
    def shapes(self) -> Sequence[tuple[int, float]]:
        """Of the first members."""
        count = min(self.population.members, AT_ONCE)
        return list(zip(self.population.ranks[:count], self.population.alphas[:count], strict=True))

    def load(self, name: str, place: int, adapter: Adapter) -> None:
        """Overwrite the place; layers the probe does not touch are given zeros."""
        whole = {key: torch.zeros_like(tensor) for key, tensor in self.population.export(place).items()}
        self.population.load(place, whole | dict(adapter.tensors))
        self.named[name] = place

    def unload(self, name: str) -> None:
        """The next one overwrites it."""
        del self.named[name]

    def sample(self, asked: Sequence[Asked], new_tokens: int) -> list[Completion]:
        """As an evaluation would."""
        members = [None if name is None else self.named[name] for name, _ in asked]
        requests = [
            Request(member, ids, new_tokens, greedy=True)
            for member, (_, ids) in zip(members, asked, strict=True)
        ]
        return self.engine.generate(requests)


@contextmanager
def _borrowed(population: Population, count: int) -> Iterator[None]:
    """Give back the first members' weights, to the bit."""
    rows = slice(population.span(0).start, population.span(count - 1).stop)
    before = population.masters[rows].clone()
    try:
        yield
    finally:
        population.masters[rows] = before
        population.sync()
