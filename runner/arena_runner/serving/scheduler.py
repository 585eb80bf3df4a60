"""The thread that owns the model: adapters change and rows join between steps, never during one."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from arena_gitops.errors import ArenaError
from arena_runner.models import BaseModel
from arena_runner.serving.decoder import Decoder, EmptyPromptError, PromptTooLongError, Row
from arena_runner.serving.detokenise import Detokeniser
from arena_runner.serving.proof import ServedProof
from arena_runner.serving.protocol import BASE, Adapter, Params, Piece, Proved
from arena_runner.serving.shelf import Loaded, Shelf, UnfitAdapterError, UnknownAdapterError

T = TypeVar("T")
log = logging.getLogger(__name__)


class BusyError(ArenaError):
    """More requests are waiting than the queue holds."""


class StoppedError(ArenaError):
    """The model server is stopping."""


class Scheduler:
    """Call from any thread; all work happens in its own."""

    def __init__(self, base: BaseModel, *, rows: int = 32, queue: int = 1024) -> None:
        self.base = base
        self.shelf = Shelf(base)
        self._decoder = Decoder(base, self.shelf)
        self._proof, self._proving = ServedProof(self.shelf), threading.Lock()
        self._most_rows, self._most_waiting = rows, queue
        self._waiting: deque[Row] = deque()
        self._orders: deque[Callable[[], None]] = deque()
        self._leaving: set[str] = set()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End everything that runs with an error and stop the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    @property
    def load(self) -> tuple[int, int]:
        """Rows that are generated now, and rows that wait."""
        return len(self._decoder.rows), len(self._waiting)

    def known(self, name: str) -> Adapter | None:
        """The adapter, if new requests may use it."""
        return None if name in self._leaving else self.shelf.get(name)

    def adapters(self) -> tuple[Adapter, ...]:
        """All that new requests may use."""
        return tuple(about for about in self.shelf.about() if about.name not in self._leaving)

    def room(self, prompt: int, wanted: int) -> int:
        """How many tokens may follow a prompt in this model's context."""
        if prompt == 0:
            raise EmptyPromptError("the prompt has no tokens")
        longest: int | None = getattr(self.base.model.config, "max_position_embeddings", None)
        if longest is None:
            return wanted
        if prompt >= longest:
            raise PromptTooLongError(f"the prompt has {prompt} tokens, {self.base.ref} holds {longest}")
        return min(wanted, longest - prompt)

    def submit(
        self,
        adapter: str,
        prompt_ids: tuple[int, ...],
        params: Params,
        emit: Callable[[Piece], None],
        logprobs: int | None = None,
    ) -> Row:
        """Queue one completion; `emit` is called from the scheduler's thread."""
        if adapter != BASE and self.known(adapter) is None:
            names = ", ".join(about.name for about in self.adapters())
            raise UnknownAdapterError(f"adapter {adapter} is not loaded; loaded: {names or 'none'}")
        seed = params.seed if params.seed is not None else int.from_bytes(os.urandom(7))
        detokeniser = Detokeniser(self.base.tokenizer, params.stop)
        room = self.room(len(prompt_ids), params.max_new_tokens)
        row = Row(adapter, prompt_ids, params, seed, emit, detokeniser, room, logprobs)
        with self._wake:
            if self._stopping:
                raise StoppedError("the model server is stopping")
            if len(self._waiting) >= self._most_waiting:
                raise BusyError(f"{len(self._waiting)} requests are waiting already")
            self._waiting.append(row)
            self._wake.notify()
        return row

    def load_adapter(self, new: Loaded) -> Future[None]:
        """Load between two steps."""
        return self._order(lambda: self._load(new))

    def unload_adapter(self, name: str) -> None:
        """Take no new requests for it; it goes when its last row has ended."""
        with self._wake:
            self._leaving.add(name)
            self._wake.notify()

    def logprobs(
        self, adapter: str, prompt_ids: tuple[int, ...], token_ids: tuple[int, ...]
    ) -> Future[list[float]]:
        """Measure between two steps."""
        self.room(len(prompt_ids), len(token_ids))
        return self._order(lambda: self._decoder.logprobs(adapter, prompt_ids, token_ids))

    def prove(self, name: str, digest: str | None = None, *, again: bool = False) -> Proved:
        """Show that a name answers by the weights it should; others are served between its steps. Blocks the caller."""
        with self._proving:
            steps = self._proof.steps(name, digest, again=again)
            while (found := self._order(lambda: next(steps)).result()) is None:
                pass
            return found

    def _load(self, new: Loaded) -> None:
        old = self.shelf.get(new.about.name)
        if old is None:
            self.shelf.add(new)
        elif old != new.about:
            raise UnfitAdapterError(f"{old.name} is still in use with digest {old.digest}")
        self._leaving.discard(new.about.name)  # asked for again before its last row had ended

    def _order(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - it is raised where the future is read
                future.set_exception(error)

        with self._wake:
            if self._stopping:
                raise StoppedError("the model server is stopping")
            self._orders.append(run)
            self._wake.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (
                    self._stopping or self._orders or self._waiting or self._decoder.rows or self._idle()
                ):
                    self._wake.wait()
                if self._stopping:
                    break
            self._obey()
            self._admit()
            self._step()
        self._end("the model server is stopping")
        self._obey()

    def _obey(self) -> None:
        while self._orders:
            self._orders.popleft()()
        for name in self._idle():
            self.shelf.remove(name)
            self._leaving.discard(name)

    def _idle(self) -> list[str]:
        """Leaving adapters that no row needs any more."""
        if not self._leaving:
            return []
        used = {row.adapter for row in (*self._decoder.rows, *self._waiting)}
        return [name for name in self._leaving if name not in used]

    def _admit(self) -> None:
        while self._waiting and len(self._decoder.rows) < self._most_rows:
            row = self._waiting[0]
            if not row.cancelled:
                try:
                    self._decoder.admit(row)
                except Exception as error:
                    log.exception("a prompt of %d tokens failed", len(row.prompt_ids))
                    row.emit(Piece(error=f"{type(error).__name__}: {error}"))
            self._waiting.popleft()

    def _step(self) -> None:
        try:
            self._decoder.step()
        except Exception as error:
            log.exception("a step over %d rows failed", len(self._decoder.rows))
            self._end(f"{type(error).__name__}: {error}")

    def _end(self, why: str) -> None:
        """Tell every row that it will not be finished."""
        for row in (*self._decoder.rows, *self._waiting):
            if not row.ended:
                row.emit(Piece(error=why, gone=self._stopping))
        self._waiting.clear()
        self._decoder = Decoder(self.base, self.shelf)
