"""The adapters that are loaded now: one Population, rebuilt when one comes or goes.

A Population has fixed members, so a change makes a new one from the tensors kept here; caches of keys and values
do not care. Rows name their adapter, never a member index, and a name's meaning never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_runner import peft_format
from arena_runner.adapters import OFF, Population
from arena_runner.lora import Rows
from arena_runner.models import BaseModel
from arena_runner.peft_format import AdapterConfig
from arena_runner.serving.protocol import BASE, Adapter


class UnknownAdapterError(ArenaError):
    """No adapter of that name is loaded. Never answered with the base model."""


class UnfitAdapterError(ArenaError):
    """The adapter cannot be loaded on this base, or is not what it was said to be."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One adapter: its tensors as read, and what it is."""

    tensors: Mapping[str, Tensor]
    config: AdapterConfig
    about: Adapter


class Shelf:
    """Owned by the scheduler's thread."""

    def __init__(self, base: BaseModel) -> None:
        self.base = base
        self._loaded: dict[str, Loaded] = {}
        self._members: dict[str, int] = {}
        self._population: Population | None = None
        self._probes: frozenset[str] = frozenset()

    def about(self) -> tuple[Adapter, ...]:
        """Everything that is loaded, in order of loading."""
        return tuple(item.about for name, item in tuple(self._loaded.items()) if name not in self._probes)

    def get(self, name: str) -> Adapter | None:
        """What is loaded under a name."""
        item = self._loaded.get(name)
        return item.about if item else None

    def add(self, new: Loaded) -> None:
        """Load one more; what was loaded before stays loaded whatever happens."""
        self._fits_base(new)
        before = dict(self._loaded)
        try:
            self._rebuild({**before, new.about.name: new})
            self._prove(new)
        except ArenaError as error:
            self._rebuild(before)
            raise UnfitAdapterError(f"adapter {new.about.name}: {error}") from error

    def remove(self, name: str) -> None:
        """Take one off."""
        self._rebuild({key: item for key, item in self._loaded.items() if key != name})

    def hold(self, probes: Mapping[str, Loaded]) -> None:
        """Put probes beside what is loaded, in the place of earlier ones; real adapters stay as they are."""
        kept = {name: item for name, item in self._loaded.items() if name not in self._probes}
        self._probes = frozenset(probes)
        self._rebuild({**kept, **probes})

    def loaded(self, name: str) -> Loaded:
        """An adapter as it was read; unknown names raise."""
        self._member(name)
        return self._loaded[name]

    def clear(self) -> None:
        """Take all off and give the base model back as it was."""
        self._rebuild({})

    def rows(self, names: Sequence[str]) -> Rows | None:
        """The adapters of a batch's tokens, as the model's layers read them; unknown names raise."""
        members = [OFF if name == BASE else self._member(name) for name in names]
        if self._population is None:
            return None
        return self._population.rows(torch.tensor(members, device=self.base.device))

    def _member(self, name: str) -> int:
        if name not in self._members:
            raise UnknownAdapterError(
                f"adapter {name} is not loaded; loaded: {', '.join(self._members) or 'none'}"
            )
        return self._members[name]

    def _fits_base(self, new: Loaded) -> None:
        trained_on = new.config.base_digest
        if trained_on and trained_on != self.base.digest:
            raise UnfitAdapterError(
                f"adapter {new.about.name} was trained on base weights {trained_on}, "
                f"{self.base.ref} here has {self.base.digest}"
            )

    def _rebuild(self, wanted: dict[str, Loaded]) -> None:
        if self._population is not None:
            self._population.detach()
            self._population = None
        if wanted:
            self._population = self._populate(list(wanted.values()))
        self._loaded = wanted
        self._members = {name: member for member, name in enumerate(wanted)}

    def _populate(self, items: Sequence[Loaded]) -> Population:
        population = Population.attach(
            self.base,
            targets=sorted({module.rpartition(".")[2] for item in items for module in modules(item.tensors)}),
            ranks=[item.config.rank for item in items],
            alphas=[item.config.alpha for item in items],
        )
        try:
            for member, item in enumerate(items):
                population.load(member, self._padded(population, item))
        except ArenaError:
            population.detach()
            raise
        return population

    def _padded(self, population: Population, item: Loaded) -> dict[str, Tensor]:
        """The adapter's tensors, and zeros for layers that only other adapters touch."""
        tensors = dict(item.tensors)
        rank = item.config.rank
        for site in population.sites:
            name_a, name_b = peft_format.tensor_names(site.name)
            if name_a not in tensors:
                tensors[name_a] = torch.zeros(rank, site.a.stop - site.a.start)
                tensors[name_b] = torch.zeros(site.b.stop - site.b.start, rank)
        return tensors

    def _prove(self, new: Loaded) -> None:
        """Read the tensors back from where the model computes with them and compare their digest."""
        assert self._population is not None
        there = self._population.export(self._members[new.about.name])
        found = peft_format.digest({name: there[name] for name in new.tensors}, new.config)
        if found != new.about.digest:
            raise UnfitAdapterError(f"its tensors hash to {found}, but {new.about.digest} was asked for")


def modules(names: Iterable[str]) -> list[str]:
    """`base_model.model.X.lora_A.weight` → `X`, each once."""
    found = {name.removeprefix("base_model.model.").partition(".lora_")[0] for name in names}
    return sorted(found)
