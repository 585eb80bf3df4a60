"""Keys and values of rows in flight: a prompt's once, however many completions follow it.

Attention of a decode step has two parts: all lanes of a prompt over the prompt's keys, every row over its own
tokens. They are merged by log-sum-exp, which is exact. Plain batched products beat every fused kernel here,
because a step has one query per row; measured on one core (64 rows, 300-token prompts, bf16): 0.56 ms a layer,
against 1.02 with the prompt's keys copied to every row and 3.0 with fused attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from arena_runner.attention import Heads, causal
from arena_runner.models import BaseModel


class Cache:
    """Room for E prompts of up to P tokens and B rows of up to T own tokens."""

    def __init__(self, base: BaseModel, prompts: int, prompt_tokens: int, rows: int, own_tokens: int) -> None:
        config = base.model.config.get_text_config()
        layers, heads = config.num_hidden_layers, config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        # Zeros, not garbage: masked places must never be NaN.
        room = torch.zeros(0, dtype=base.dtype, device=base.device)
        self.prompt = room.new_zeros(layers, 2, prompts, heads, prompt_tokens, size)
        self.own = room.new_zeros(layers, 2, rows, heads, own_tokens, size)

    def move_prompt(self, source: int, target: int) -> None:
        """Put one prompt in another's place."""
        self.prompt[:, :, target] = self.prompt[:, :, source]

    def move_row(self, source: int, target: int, length: int) -> None:
        """Put one row's first `length` own tokens in another's place."""
        self.own[:, :, target, :, :length] = self.own[:, :, source, :, :length]


class Prefill:
    """Prompts beside each other in one sequence, each causal over itself; their keys and values are kept."""

    def __init__(self, cache: Cache, places: Sequence[int], lengths: Sequence[int]) -> None:
        self._cache = cache
        self._places = places
        self._lengths = lengths

    def attend(self, layer: int, heads: Heads) -> Tensor:
        """See `attention.Layout`."""
        outs, start = [], 0
        for place, length in zip(self._places, self._lengths, strict=True):
            q, k, v = (x[:, :, start : start + length] for x in heads[:3])
            self._cache.prompt[layer, 0, place, :, :length] = k[0]
            self._cache.prompt[layer, 1, place, :, :length] = v[0]
            outs.append(causal(q, k, v, heads))
            start += length
        return torch.cat(outs, dim=2)


class Decode:
    """One new token in each of the first B rows.

    Args:
        cache: where keys and values lie.
        prompt_of_row: place of each row's prompt.
        prompt_lengths: tokens of the prompt at each place in use.
        own_lengths: own tokens of each row before this one.
    """

    def __init__(
        self,
        cache: Cache,
        prompt_of_row: Sequence[int],
        prompt_lengths: Sequence[int],
        own_lengths: Sequence[int],
    ) -> None:
        self._cache = cache
        device = cache.own.device
        lanes, taken = [], [0] * len(prompt_lengths)
        for place in prompt_of_row:
            lanes.append((place, taken[place]))
            taken[place] += 1
        self._width = max(taken)
        self._shape = (len(prompt_lengths), self._width)
        self._lane = torch.tensor([e * self._width + g for e, g in lanes], device=device)  # (B,)
        self._all_lanes = len(lanes) == len(prompt_lengths) * self._width and lanes == sorted(lanes)
        self._prompt_lengths = torch.tensor(prompt_lengths, device=device)  # (E,)
        self._own = torch.tensor(own_lengths, device=device)  # (B,)
        self._prompt_of_row = torch.tensor(prompt_of_row, device=device)  # (B,)
        self._row = torch.arange(len(own_lengths), device=device)
        self._reach = (max(prompt_lengths), max(own_lengths) + 1)

    @property
    def positions(self) -> Tensor:
        """Position id of each row's new token, (B,)."""
        return self._prompt_lengths[self._prompt_of_row] + self._own

    def advance(self) -> None:
        """Every row has one more token; who is in flight did not change."""
        self._own = self._own + 1
        self._reach = (self._reach[0], self._reach[1] + 1)

    def attend(self, layer: int, heads: Heads) -> Tensor:
        """See `attention.Layout`; heads are (B, H, 1, D)."""
        rows, total, _, size = heads.q.shape
        shared = heads.k.shape[1]
        own_k, own_v = self._cache.own[layer, :, :rows, :, : self._reach[1]].unbind(0)  # (B, Hkv, T, D)
        own_k[self._row, :, self._own] = heads.k[:, :, 0]
        own_v[self._row, :, self._own] = heads.v[:, :, 0]
        q = heads.q.view(rows, shared, total // shared, size)
        own = _partial(q, own_k, own_v, self._own_mask(heads.window), heads.scale)
        prompt_k, prompt_v = self._cache.prompt[layer, :, : self._shape[0], :, : self._reach[0]].unbind(0)
        folded = self._fold(q)  # (E, Hkv, G * rep, D)
        prompt = _partial(
            folded, prompt_k, prompt_v, self._prompt_mask(heads.window, q.shape[2]), heads.scale
        )
        out = _merge(own, [self._unfold(x, q.shape[2]) for x in prompt])
        return out.to(q.dtype).reshape(rows, total, 1, size)

    def _fold(self, x: Tensor) -> Tensor:
        """(B, Hkv, rep, D) → (E, Hkv, G * rep, D): every prompt's rows become lanes of one query block."""
        lanes = self._shape[0] * self._shape[1]
        if not self._all_lanes:
            x = x.new_zeros(lanes, *x.shape[1:]).index_copy_(0, self._lane, x)
        return x.reshape(*self._shape, *x.shape[1:]).transpose(1, 2).flatten(2, 3)

    def _unfold(self, x: Tensor, repeat: int) -> Tensor:
        """(E, Hkv, G * rep, X) → (B, Hkv, rep, X)."""
        x = (
            x.reshape(self._shape[0], x.shape[1], self._width, repeat, x.shape[3])
            .transpose(1, 2)
            .flatten(0, 1)
        )
        return x if self._all_lanes else x[self._lane]

    def _own_mask(self, window: int | None) -> Tensor:
        back = self._own[:, None] - torch.arange(self._reach[1], device=self._own.device)  # (B, T)
        hidden = back < 0 if window is None else (back < 0) | (back >= window)
        return hidden[:, None, None]

    def _prompt_mask(self, window: int | None, repeat: int) -> Tensor:
        place = torch.arange(self._reach[0], device=self._own.device)
        hidden = (place >= self._prompt_lengths[:, None])[:, None, None]  # (E, 1, 1, P)
        if window is None:
            return hidden
        back = self.positions[:, None] - place >= window  # (B, P)
        return hidden | self._fold(back[:, None, None].expand(-1, 1, repeat, -1))


def _partial(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Unnormalised attention: (sum of weights times values, sum of weights, largest score)."""
    scores = (q @ k.transpose(-1, -2)).float() if q.dtype != torch.float64 else q @ k.transpose(-1, -2)
    scores = scores.mul_(scale).masked_fill_(hidden, -1e30)
    top = scores.amax(-1, keepdim=True)
    weights = (scores - top).exp_()
    return (weights.to(v.dtype) @ v).to(weights.dtype), weights.sum(-1, keepdim=True), top


def _merge(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Attention over the union of two disjoint sets of keys."""
    top = a[2].maximum(b[2])
    of_a, of_b = (a[2] - top).exp_(), (b[2] - top).exp_()
    return (a[0] * of_a + b[0] * of_b) / (a[1] * of_a + b[1] * of_b)
