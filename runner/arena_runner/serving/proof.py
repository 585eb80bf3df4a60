"""Promotion's half of the policy-identity proof: what a name answers by is what was trained.

Contract, for whoever promotes (`POST /prove`, `server.probe`): call it after an adapter is loaded under its revision's
name and before any traffic is sent there. It refuses with `policy-mismatch` and the reason, or says what it found.

* digest half, always: the tensors are read back from where the model computes with them, by the same map from names to
  places that a request takes, and compared with the files; the files with the digest the trainer recorded.
* path half: the adapter's own greedy completions are compared with what its format means, always; a probe adapter goes
  through every targeted layer the first time this process sees that rank, alpha and those targets. The model goes on
  serving between two layers. A name that was proved by this process, and is asked for `again`, has only its digest half
  repeated: going back to what is loaded must not take longer than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from arena_runner import peft_format
from arena_runner.engines import reading
from arena_runner.engines.base import Completion
from arena_runner.engines.identity import Asked
from arena_runner.engines.plain import Adapter
from arena_runner.engines.reading import NOTHING, PolicyMismatchError
from arena_runner.serving import protocol
from arena_runner.serving.decoder import Decoder
from arena_runner.serving.path import AT_ONCE, PathHalf
from arena_runner.serving.protocol import BASE, Proved
from arena_runner.serving.shelf import Loaded, Shelf


class ServedProof:
    """Of one model server's process; every method is called by the thread that owns the model."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._base = shelf, shelf.base
        self._path = PathHalf()
        self._proved: dict[tuple[str, str], Proved] = {}
        """by name and digest, what was shown last"""

    def steps(self, name: str, digest: str | None, *, again: bool = False) -> Iterator[Proved | None]:
        """Prove one name; yields None between layers, and at last what was found.

        `again`: what answered by its weights before, in this process, needs the digest half only.

        Raises:
            UnknownAdapterError: Nothing is loaded under the name.
            PolicyMismatchError: It is not what it should be.
        """
        loaded = self._shelf.loaded(name)
        adapter = Adapter(loaded.tensors, loaded.config)
        self._demand_files(name, adapter, digest)
        self._demand_lying(name, adapter)
        if again and (before := self._proved.get((name, loaded.about.digest))) is not None:
            yield before.model_copy(update={"layers": 0})
            return
        subject = _Served(self._shelf, loaded)
        path = self._path.steps(self._base, subject, name, adapter, lambda: self._shelf.hold({}))
        shown = yield from path
        found = loaded.about.digest
        proved = Proved(
            adapter=name, digest=found, apart=shown.apart, tolerance=shown.tolerance, layers=shown.layers
        )
        self._proved[name, found] = proved
        yield proved

    def _demand_files(self, name: str, adapter: Adapter, digest: str | None) -> None:
        found = peft_format.digest(adapter.tensors, adapter.config)
        if digest is not None and digest != found:
            raise PolicyMismatchError(
                f"what was loaded as {name} has digest {found}, the trainer recorded {digest}"
            )

    def _demand_lying(self, name: str, adapter: Adapter) -> None:
        rows = self._shelf.rows
        found = reading.lying_in(self._base, rows([name]), rows([name, BASE]))
        wanted = reading.expected(adapter, self._base.dtype)
        known = {m: mark for m, mark in found.items() if mark != NOTHING or m in wanted}
        if known != wanted:
            others = {
                about.name: reading.expected(self._as_read(about.name), self._base.dtype)
                for about in self._shelf.about()
                if about.name != name
            }
            reading.demand(name, known, wanted, others)

    def _as_read(self, name: str) -> Adapter:
        loaded = self._shelf.loaded(name)
        return Adapter(loaded.tensors, loaded.config)


@dataclass(slots=True)
class _Served:
    """The model server as the proof sees it: probes of the adapter's own shape lie beside real adapters."""

    shelf: Shelf
    like: Loaded
    waiting: dict[str, Loaded] = field(default_factory=dict)

    @property
    def shapes(self) -> Sequence[tuple[int, float]]:
        """All like the adapter that is proved."""
        return [(self.like.config.rank, self.like.config.alpha)] * AT_ONCE

    def load(self, name: str, place: int, adapter: Adapter) -> None:
        """Lay one ready; all of a batch are loaded at once."""
        del place
        about = protocol.Adapter(
            name=name,
            digest=peft_format.digest(adapter.tensors, adapter.config),
            rank=adapter.config.rank,
            alpha=adapter.config.alpha,
        )
        self.waiting[name] = Loaded(adapter.tensors, adapter.config, about)

    def unload(self, name: str) -> None:
        """The next batch takes its place."""
        del self.waiting[name]

    @torch.no_grad()
    def sample(self, asked: Sequence[Asked], new_tokens: int) -> list[Completion]:
        """As any request is answered."""
        if self.waiting:
            self.shelf.hold(self.waiting)
        decoder = Decoder(self.shelf.base, self.shelf)
        return decoder.greedy([(name or BASE, ids) for name, ids in asked], new_tokens)
