"""Continuous batching: rows of any adapters join when there is room, leave when they end, and share every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_runner.engines.base import Completion
from arena_runner.models import BaseModel
from arena_runner.serving.cache import Cache, PromptLayout, StepLayout
from arena_runner.serving.detokenise import Detokeniser
from arena_runner.serving.protocol import Finish, Params, Piece, Token
from arena_runner.serving.sampling import choose
from arena_runner.serving.shelf import Shelf


class PromptTooLongError(ArenaError):
    """The prompt leaves no room for a single token."""


class EmptyPromptError(ArenaError):
    """There is nothing to continue."""


@dataclass(slots=True)
class Row:
    """One completion on its way."""

    adapter: str
    prompt_ids: tuple[int, ...]
    params: Params
    key: int
    """stream of random numbers"""
    emit: Callable[[Piece], None]
    detokeniser: Detokeniser
    room: int
    """tokens it may generate"""
    logprobs: int | None = None
    """how many others to tell beside every token; None: tell nothing"""
    told: list[Token] = field(default_factory=list)
    """tokens that no piece has carried yet"""
    generated: list[int] = field(default_factory=list)
    cancelled: bool = False
    ended: bool = False

    def see(self, token: int, logits_V: Tensor) -> None:
        """Called with every token that is chosen."""


class Watched(Row):
    """A greedy row whose logprobs are kept."""

    def __init__(self, adapter: str, prompt_ids: tuple[int, ...], new_tokens: int, tokenizer: Any) -> None:
        params = Params(max_new_tokens=new_tokens, temperature=0, do_sample=False)
        detokeniser = Detokeniser(tokenizer, ())
        super().__init__(adapter, prompt_ids, params, 0, lambda _piece: None, detokeniser, new_tokens)
        self.kept: list[float] = []

    def see(self, token: int, logits_V: Tensor) -> None:
        """Keep what was thought of it."""
        self.kept.append(float(logits_V.float().log_softmax(-1)[token]))

    def completion(self, eos_ids: frozenset[int]) -> Completion:
        """What an engine would have returned."""
        ended = self.generated[-1] in eos_ids
        return Completion(tuple(self.generated), tuple(self.kept), "eos" if ended else "length")


class Decoder:
    """The active rows and their cache. Used by one thread."""

    def __init__(self, base: BaseModel, shelf: Shelf) -> None:
        self._base, self._shelf = base, shelf
        self._cache = Cache()
        self.rows: list[Row] = []

    def admit(self, row: Row) -> None:
        """Run the prompt and take the first token."""
        if not self._base.packs:
            self.rows.append(row)  # its first step runs the prompt
            return
        place = self._cache.open(len(row.prompt_ids))
        self.rows.append(row)
        try:
            positions = torch.arange(len(row.prompt_ids))
            logits = self._forward(
                torch.tensor(row.prompt_ids),
                positions,
                [row.adapter] * len(positions),
                PromptLayout(self._cache, place),
            )
            self._take(row, logits[-1])
        except BaseException:
            self._drop(place)
            raise
        if row.ended:
            self._drop(place)

    def step(self) -> None:
        """One token for every row."""
        self._leave([row for row in self.rows if row.cancelled])
        if not self.rows:
            return
        logits = self._cached() if self._base.packs else self._uncached()
        for row, scores in zip(self.rows, logits, strict=True):
            self._take(row, scores)
        self._leave([row for row in self.rows if row.ended])

    def _cached(self) -> Tensor:
        """Logits (n, V) of one forward with one token per row."""
        positions = torch.tensor(self._cache.lengths)
        self._cache.advance()
        layout = StepLayout(self._cache, self._base.device)
        names = [row.adapter for row in self.rows]
        return self._forward(torch.tensor([row.generated[-1] for row in self.rows]), positions, names, layout)

    def _uncached(self) -> Tensor:
        """Logits (n, V) of a whole forward per row: slow, and right for every kind of attention."""
        found = []
        for row in self.rows:
            ids = torch.tensor([*row.prompt_ids, *row.generated])
            found.append(self._forward(ids, torch.arange(len(ids)), [row.adapter] * len(ids), None, last=1))
        return torch.cat(found)

    def logprobs(self, adapter: str, prompt_ids: tuple[int, ...], token_ids: tuple[int, ...]) -> list[float]:
        """Measure log p of each token after what precedes it, by the same adapted layers."""
        ids = torch.tensor(prompt_ids + token_ids[:-1])
        logits = self._forward(ids, torch.arange(len(ids)), [adapter] * len(ids), None, last=len(token_ids))
        chosen = torch.tensor(token_ids, device=logits.device)
        return [float(x) for x in torch.log_softmax(logits.float(), -1).gather(1, chosen[:, None])[:, 0]]

    @torch.no_grad()
    def greedy(self, asked: Sequence[tuple[str, tuple[int, ...]]], new_tokens: int) -> list[Completion]:
        """Completions with their logprobs, for proofs: the same prompts, steps and layouts as any request.

        They have a cache of their own and leave the rows that are being generated alone.
        """
        own = Decoder(self._base, self._shelf)
        rows = [Watched(adapter, ids, new_tokens, self._base.tokenizer) for adapter, ids in asked]
        for row in rows:
            own.admit(row)
        while own.rows:
            own.step()
        return [row.completion(self._base.eos_ids) for row in rows]

    @torch.no_grad()
    def _forward(
        self,
        ids: Tensor,
        positions: Tensor,
        adapters: list[str],
        layout: PromptLayout | StepLayout | None,
        *,
        last: int | None = None,
    ) -> Tensor:
        """Packed tokens (T,) → logits of the last `last` tokens, of one for a prompt, of all for a step."""
        device = self._base.device
        wanted = last or (1 if isinstance(layout, PromptLayout) else len(ids))
        extra = {} if layout is None else {"arena_layout": layout}
        output = self._base.body(
            input_ids=ids[None].to(device),
            position_ids=positions[None].to(device),
            use_cache=False,
            arena_rows=self._shelf.rows(adapters),
            **extra,
        )
        logits: Tensor = self._base.head(output.last_hidden_state[0, -wanted:])
        return logits

    def _take(self, row: Row, logits_V: Tensor) -> None:
        """Choose the row's next token and pass its text on."""
        token = choose(logits_V, row.params, row.key, len(row.generated))
        row.generated.append(token)
        row.see(token, logits_V)
        if token in self._base.eos_ids:
            self._finish(row, "stop")
            return
        if row.logprobs is not None:
            row.told.append(self._told(logits_V, token, row.logprobs))
        text = row.detokeniser.push(token)
        if row.detokeniser.stopped:
            self._finish(row, "stop", text)
        elif len(row.generated) >= row.room:
            self._finish(row, "length", text)
        elif text:
            row.emit(Piece(text=text, tokens=_taken(row)))

    def _told(self, logits_V: Tensor, token: int, others: int) -> Token:
        """A token and its rivals, as the model thinks of them at temperature 1."""
        logprobs = torch.log_softmax(logits_V.float(), -1)
        word = self._base.tokenizer.decode
        values, ids = logprobs.topk(others)
        rivals = tuple((str(word([i])), v) for i, v in zip(ids.tolist(), values.tolist(), strict=True))
        return Token(text=str(word([token])), logprob=float(logprobs[token]), others=rivals)

    def _finish(self, row: Row, reason: Literal["stop", "length"], text: str = "") -> None:
        text += row.detokeniser.finish()
        counts = {"prompt_tokens": len(row.prompt_ids), "completion_tokens": len(row.generated)}
        finish = Finish(reason=reason, **counts)
        row.ended = True
        row.emit(Piece(text=text, tokens=_taken(row), finish=finish))

    def _leave(self, rows: list[Row]) -> None:
        for row in rows:
            self._drop(next(place for place, active in enumerate(self.rows) if active is row))

    def _drop(self, place: int) -> None:
        if self._base.packs:
            self._cache.close(place)
        last = self.rows.pop()
        if place < len(self.rows):
            self.rows[place] = last


def _taken(row: Row) -> tuple[Token, ...]:
    told, row.told = tuple(row.told), []
    return told
