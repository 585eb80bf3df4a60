"""Both halves of the proof for an engine in another process, over the very calls that serve a run.

The digest half asks which integer id a name leads to, demands that no earlier adapter ever had it (vLLM's caches are
keyed by it), and has the worker hash what lies in its slot. The path half loads probes under names of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from arena_runner.adapters import Population
from arena_runner.engines.base import Completion, Request
from arena_runner.engines.identity import Asked, Noise, calibrate, differences, prompt, prove_path
from arena_runner.engines.plain import Adapter
from arena_runner.engines.reading import NOTHING, PolicyMismatchError, demand, expected, held
from arena_runner.engines.vllm_process import VllmProcess
from arena_runner.models import BaseModel

AT_ONCE = 8
"""probes that share a batch"""
ANSWERS = (4, 8)
"""completions and tokens that are compared after every sync"""


class Loader(Protocol):
    """The part of the engine that sends adapters and asks for completions."""

    def load(self, name: str, adapter: Adapter) -> None:
        """Make an adapter available under a new name."""
        ...

    def unload(self, name: str) -> None:
        """Take it away."""
        ...

    def off(self) -> str:
        """The name under which the bare base model answers."""
        ...

    def complete(self, name: str, request: Request) -> Completion:
        """One completion, by what is loaded under a name."""
        ...


class VllmProof:
    """One per engine."""

    def __init__(self, base: BaseModel, population: Population, process: VllmProcess, loader: Loader) -> None:
        self._base, self._population, self._process = base, population, process
        self._subject = _Names(population, process, loader)
        self._noise: Noise | None = None
        self._newest = 0

    def of_the_path(self) -> None:
        """Raise PolicyMismatchError unless probes answer as they should: at the start, and after every restart."""
        self._newest = 0
        self._noise = prove_path(
            self._base, self._subject, [site.name for site in self._population.sites]
        ).noise

    def of_member(self, member: int, name: str, before: str | None) -> None:
        """Raise PolicyMismatchError unless the engine holds the member's newest weights under `name`, and answers by them."""
        numbers = self._process.names()
        number = numbers.get(name, 0)
        if number <= self._newest:
            raise PolicyMismatchError(
                f"the engine has no place of its own for {name}: what it answers could be an earlier adapter's"
            )
        adapter = held(self._population, member)
        found = self._read(number, adapter)
        wanted = expected(adapter, self._base.dtype)
        if found != wanted:
            earlier = {"the step before": self._read(numbers[before], adapter)} if before in numbers else {}
            demand(name, found, wanted, self._others(member) | earlier)
        self._demand_answers(name, adapter)
        self._newest = number

    def _read(self, number: int, adapter: Adapter) -> dict[str, str]:
        """Digests of what lies in an id's slot."""
        found = self._process.read(number, adapter.config.rank)
        return {
            module: mark for module, mark in found.items() if mark != NOTHING or module in adapter.modules
        }

    def _others(self, member: int) -> dict[str, dict[str, str]]:
        rest = [m for m in range(self._population.members) if m != member]
        return {f"m{m}": expected(held(self._population, m), self._base.dtype) for m in rest}

    def _demand_answers(self, name: str, adapter: Adapter) -> None:
        """What it says is what its format means: sees large differences only, and costs next to nothing."""
        self._noise = self._noise or calibrate(self._base, self._subject)
        count, length = ANSWERS
        asked = [(name, adapter, prompt(self._base, number)) for number in range(count)]
        apart = float(differences(self._base, self._subject, asked, length).abs().mean())
        if not apart <= self._noise.tolerance:
            raise PolicyMismatchError(
                f"the engine holds the right weights under {name} and does not answer by them: {apart:.3g} nats per "
                f"token from the trainer, {self._noise.tolerance:.3g} allowed. Nothing was sampled from it."
            )


class _Names:
    """vLLM as the proof sees it."""

    def __init__(self, population: Population, process: VllmProcess, loader: Loader) -> None:
        self._population, self._process, self._loader = population, process, loader

    @property
    def shapes(self) -> Sequence[tuple[int, float]]:
        """As many as members; vLLM has room for two more."""
        count = min(self._population.members, AT_ONCE)
        return list(zip(self._population.ranks[:count], self._population.alphas[:count], strict=True))

    def load(self, name: str, place: int, adapter: Adapter) -> None:
        """A file with one layer's tensors: the other layers of its slot must then be zero."""
        del place  # any slot takes any rank
        self._loader.load(name, adapter)

    def unload(self, name: str) -> None:
        """Give its slot back."""
        self._loader.unload(name)

    def sample(self, asked: Sequence[Asked], new_tokens: int) -> list[Completion]:
        """Side by side, so that they share batches."""
        off = self._loader.off()

        def one(asked: Asked) -> Completion:
            name, ids = asked
            return self._loader.complete(name or off, Request(None, ids, new_tokens, greedy=True))

        with ThreadPoolExecutor(self._process.spec.rows_in_flight, "vllm") as threads:
            return list(threads.map(one, asked))
