"""Sampling without any cache: every step runs the whole texts again, right-padded.

Slow and right for every architecture: the path of those whose attention our caches cannot hold, and what the
tests compare the fast engine with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from arena_runner import seeds
from arena_runner.adapters import OFF, Population
from arena_runner.engines.base import Completion, Request
from arena_runner.engines.sampling import choose
from arena_runner.models import BaseModel


class UncachedEngine:
    """Samples completions for a population, one batch of `rows_in_flight` requests after the other."""

    def __init__(
        self, base: BaseModel, population: Population | None = None, *, rows_in_flight: int = 64
    ) -> None:
        self._base = base
        self._population = population
        self._rows_in_flight = rows_in_flight

    @torch.inference_mode()
    def generate(
        self, requests: Sequence[Request], on_done: Callable[[int, Completion], None] | None = None
    ) -> list[Completion]:
        """Sample all requests, in their order; `on_done(index, completion)` is called as each one finishes."""
        done: dict[int, Completion] = {}
        for at in range(0, len(requests), self._rows_in_flight):
            batch = dict(enumerate(requests[at : at + self._rows_in_flight], start=at))
            for index, completion in self._batch(batch):
                done[index] = completion
                if on_done is not None:
                    on_done(index, completion)
        return [done[i] for i in range(len(requests))]

    def _batch(self, batch: dict[int, Request]) -> list[tuple[int, Completion]]:
        tokens: dict[int, list[int]] = {i: [] for i in batch}
        logprobs: dict[int, list[float]] = {i: [] for i in batch}
        done = []
        open_rows = list(batch)
        while open_rows:
            requests = [batch[i] for i in open_rows]
            hidden = self._last_hidden(requests, [tokens[i] for i in open_rows])
            chosen, opinion = choose(
                self._base.head(hidden), *_wishes(requests, [len(tokens[i]) for i in open_rows], hidden)
            )
            for i, token, logprob in zip(list(open_rows), chosen.tolist(), opinion.tolist(), strict=True):
                tokens[i].append(token)
                logprobs[i].append(logprob)
                ended = token in self._base.eos_ids
                if ended or len(tokens[i]) == batch[i].max_new_tokens:
                    open_rows.remove(i)
                    done.append(
                        (i, Completion(tuple(tokens[i]), tuple(logprobs[i]), "eos" if ended else "length"))
                    )
        return done

    def _last_hidden(self, requests: Sequence[Request], tokens: Sequence[Sequence[int]]) -> Tensor:
        """Hidden state of each row's last token, (B, d)."""
        device = self._base.device
        texts = [
            torch.tensor([*r.prompt_ids, *t], device=device) for r, t in zip(requests, tokens, strict=True)
        ]
        ids = pad_sequence(texts, batch_first=True, padding_value=self._base.pad_id)
        real = pad_sequence([torch.ones_like(t) for t in texts], batch_first=True)
        owners = torch.tensor([OFF if r.member is None else r.member for r in requests], device=device)
        carried = owners[:, None].expand_as(ids).reshape(-1)
        rows = self._population.rows(carried) if self._population is not None else None
        out = self._base.body(input_ids=ids, attention_mask=real, use_cache=False, arena_rows=rows)
        hidden: Tensor = out.last_hidden_state[torch.arange(len(texts)), real.sum(-1) - 1]
        return hidden


def _wishes(
    requests: Sequence[Request], lengths: Sequence[int], like: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Temperature, uniform and greediness of each row."""
    device = like.device
    keys = torch.tensor([r.key for r in requests], device=device)
    return (
        torch.tensor([r.temperature for r in requests], device=device),
        seeds.uniform(keys, torch.tensor(lengths, device=device)),
        torch.tensor([r.greedy for r in requests], device=device),
    )
