"""Batched sampling over a population with torch alone.

It samples with the very tensors the trainer updates, so after an update there is nothing to send; that they are what
the layers compute with is read back before every batch (`torch_proof`). All members share every decode step. Requests of the same member with the same prompt share one prefill and one copy of
the prompt's keys; a finished row's place goes to the next request at once, and when none is left the batch
shrinks. Which request is admitted when follows from order and lengths alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from arena_runner import seeds
from arena_runner.adapters import OFF, Population
from arena_runner.engines.base import Completion, Request
from arena_runner.engines.kv import Cache, Decode, Prefill
from arena_runner.engines.reading import demand_lying
from arena_runner.engines.sampling import choose
from arena_runner.engines.uncached import UncachedEngine
from arena_runner.lora import Rows
from arena_runner.models import BaseModel

PREFILL_TOKENS = 4096
"""prompt tokens prefilled in one forward"""

OnDone = Callable[[int, Completion], None]


@dataclass(slots=True)
class _Prompt:
    """A prompt in flight, or waiting, and the requests that continue it."""

    member: int
    ids: tuple[int, ...]
    waiting: deque[int]
    """indices of requests not admitted yet"""
    active: int = 0
    last: Tensor | None = None
    """hidden state of its last token, (d,)"""


@dataclass(slots=True)
class _Row:
    """One completion in flight."""

    index: int
    request: Request
    prompt: _Prompt
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class TorchEngine:
    """Samples completions for a population; see the module."""

    def __init__(
        self, base: BaseModel, population: Population | None = None, *, rows_in_flight: int = 64
    ) -> None:
        self._base = base
        self._population = population
        self._rows_in_flight = rows_in_flight

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], on_done: OnDone | None = None) -> list[Completion]:
        """Sample all requests, in their order; `on_done(index, completion)` is called as each one finishes."""
        if not requests:
            return []
        self._prove({request.member for request in requests})
        if not self._base.packs:
            slow = UncachedEngine(self._base, self._population, rows_in_flight=self._rows_in_flight)
            return slow.generate(requests, on_done)
        done: dict[int, Completion] = {}

        def finish(index: int, completion: Completion) -> None:
            done[index] = completion
            if on_done is not None:
                on_done(index, completion)

        flight = _Flight(self._base, self._population, requests, min(self._rows_in_flight, len(requests)))
        while flight.admit(finish):
            flight.step(finish)
        return [done[i] for i in range(len(requests))]

    def _prove(self, members: Iterable[int | None]) -> None:
        if self._population is not None:
            for member in sorted(member for member in members if member is not None):
                demand_lying(self._base, self._population, member)


class _Flight:
    """The rows in flight of one `generate`."""

    def __init__(
        self, base: BaseModel, population: Population | None, requests: Sequence[Request], capacity: int
    ) -> None:
        self._base = base
        self._population = population
        self._capacity = capacity
        self._rows: list[_Row] = []
        self._prompts: list[_Prompt] = []
        self._queue = _group(requests)
        self._requests = requests
        self._decode: Decode | None = None
        self._carried: Rows | None = None
        own = max(r.max_new_tokens for r in requests)
        longest = max(len(r.prompt_ids) for r in requests)
        self._cache = Cache(base, min(capacity, len(self._queue)), longest, capacity, own)

    def admit(self, finish: OnDone) -> bool:
        """Fill free places from the queue; False when nothing is in flight and nothing waits."""
        while len(self._rows) < self._capacity:
            started = self._start_prompts(self._capacity - len(self._rows))
            fresh = self._start_rows()
            if not fresh:
                break
            self._prefill(started)
            self._decode = None
            hidden = torch.stack([row.prompt.last for row in fresh if row.prompt.last is not None])
            self._sample(fresh, hidden)
            self._retire(finish)
        return bool(self._rows)

    def step(self, finish: OnDone) -> None:
        """Feed every row its newest token and sample the next one."""
        if self._decode is None:
            self._lay_out()
        assert self._decode is not None
        tokens = torch.tensor([[row.tokens[-1]] for row in self._rows], device=self._base.device)
        hidden = self._base.body(
            input_ids=tokens,
            position_ids=self._decode.positions[:, None],
            use_cache=False,
            arena_layout=self._decode,
            arena_rows=self._carried,
        ).last_hidden_state[:, 0]
        self._decode.advance()
        self._sample(self._rows, hidden)
        self._retire(finish)

    def _start_prompts(self, free: int) -> list[_Prompt]:
        """Take prompts from the queue until the free places have takers."""
        wanting = sum(len(p.waiting) for p in self._prompts)
        started = []
        while self._queue and wanting < free:
            prompt = self._queue.popleft()
            wanting += len(prompt.waiting)
            self._prompts.append(prompt)
            started.append(prompt)
        return started

    def _start_rows(self) -> list[_Row]:
        fresh = []
        for prompt in self._prompts:
            while prompt.waiting and len(self._rows) < self._capacity:
                index = prompt.waiting.popleft()
                row = _Row(index, self._requests[index], prompt)
                prompt.active += 1
                self._rows.append(row)
                fresh.append(row)
        return fresh

    def _prefill(self, started: Sequence[_Prompt]) -> None:
        """Run new prompts through the model, several in one forward."""
        batch: list[_Prompt] = []
        for prompt in started:
            if batch and sum(len(p.ids) for p in batch) + len(prompt.ids) > PREFILL_TOKENS:
                self._forward_prompts(batch)
                batch = []
            batch.append(prompt)
        if batch:
            self._forward_prompts(batch)

    def _forward_prompts(self, batch: Sequence[_Prompt]) -> None:
        device = self._base.device
        lengths = [len(p.ids) for p in batch]
        members = torch.tensor([p.member for p in batch], device=device)
        hidden = self._base.body(
            input_ids=torch.tensor([[t for p in batch for t in p.ids]], device=device),
            position_ids=torch.cat([torch.arange(n, device=device) for n in lengths])[None],
            use_cache=False,
            arena_layout=Prefill(self._cache, [self._prompts.index(p) for p in batch], lengths),
            arena_rows=self._carry(members.repeat_interleave(torch.tensor(lengths, device=device))),
        ).last_hidden_state[0]
        ends = torch.tensor(lengths).cumsum(0) - 1
        for prompt, end in zip(batch, ends.tolist(), strict=True):
            prompt.last = hidden[end].clone()

    def _lay_out(self) -> None:
        """Who is in flight has changed: rebuild what a step needs to know about it."""
        place = {id(p): i for i, p in enumerate(self._prompts)}
        self._decode = Decode(
            self._cache,
            [place[id(row.prompt)] for row in self._rows],
            [len(p.ids) for p in self._prompts],
            # The newest token has been sampled but not fed yet.
            [len(row.tokens) - 1 for row in self._rows],
        )
        self._carried = self._carry(
            torch.tensor([row.prompt.member for row in self._rows], device=self._base.device)
        )

    def _carry(self, members: Tensor) -> Rows | None:
        return self._population.rows(members) if self._population is not None else None

    def _sample(self, rows: Sequence[_Row], hidden_Bd: Tensor) -> None:
        """Append one token to each row."""
        device = self._base.device
        draws = seeds.uniform(
            torch.tensor([row.request.key for row in rows], device=device),
            torch.tensor([len(row.tokens) for row in rows], device=device),
        )
        tokens, logprobs = choose(
            self._base.head(hidden_Bd),
            torch.tensor([row.request.temperature for row in rows], device=device),
            draws,
            torch.tensor([row.request.greedy for row in rows], device=device),
        )
        for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)

    def _retire(self, finish: OnDone) -> None:
        """Report finished rows; the last row takes a finished row's place, the last prompt a finished prompt's."""
        for place in range(len(self._rows) - 1, -1, -1):
            row = self._rows[place]
            ended = row.tokens[-1] in self._base.eos_ids
            if not ended and len(row.tokens) < row.request.max_new_tokens:
                continue
            finish(
                row.index, Completion(tuple(row.tokens), tuple(row.logprobs), "eos" if ended else "length")
            )
            row.prompt.active -= 1
            self._decode = None
            last = self._rows.pop()
            if last is not row:
                self._cache.move_row(len(self._rows), place, len(last.tokens) - 1)
                self._rows[place] = last
        for place in range(len(self._prompts) - 1, -1, -1):
            prompt = self._prompts[place]
            if prompt.active or prompt.waiting:
                continue
            tail = self._prompts.pop()
            if tail is not prompt:
                self._cache.move_prompt(len(self._prompts), place)
                self._prompts[place] = tail


def _group(requests: Sequence[Request]) -> deque[_Prompt]:
    """Requests that share member and prompt, in order of first appearance."""
    groups: dict[tuple[int, tuple[int, ...]], _Prompt] = {}
    for index, request in enumerate(requests):
        member = OFF if request.member is None else request.member
        key = (member, request.prompt_ids)
        groups.setdefault(key, _Prompt(member, request.prompt_ids, deque())).waiting.append(index)
    return deque(groups.values())
