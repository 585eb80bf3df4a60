"""Keys and values of the rows being generated, and the two ways of attending to them.

One buffer per layer: (rows, Hkv, T, D). Active rows are the first `n`; when one leaves, the last takes its place,
so a step attends to a slice and copies nothing. Buffers grow by doubling when a row or a position more is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from arena_runner.attention import Heads

FIRST_ROWS, FIRST_LENGTH = 4, 128


class Cache:
    """Lengths and buffers of all active rows."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self._rows, self._length = FIRST_ROWS, FIRST_LENGTH

    def open(self, length: int) -> int:
        """A place for one more row whose prompt has `length` tokens."""
        self.lengths.append(length)
        self._reserve()
        return len(self.lengths) - 1

    def advance(self) -> None:
        """Every row has one token more."""
        self.lengths = [length + 1 for length in self.lengths]
        self._reserve()

    def close(self, place: int) -> None:
        """A row leaves; the last row moves to its place."""
        last = len(self.lengths) - 1
        if place != last:
            size = self.lengths[last]
            for pair in self._buffers.values():
                for buffer in pair:
                    buffer[place, :, :size] = buffer[last, :, :size]
            self.lengths[place] = self.lengths[last]
        del self.lengths[last]

    def layer(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's buffers, large enough for what `open` and `advance` have reserved."""
        pair = self._buffers.get(layer)
        if pair is None or pair[0].shape[0] < self._rows or pair[0].shape[2] < self._length:
            pair = (
                self._grown(pair[0] if pair else None, like),
                self._grown(pair[1] if pair else None, like),
            )
            self._buffers[layer] = pair
        return pair

    def _reserve(self) -> None:
        while self._rows < len(self.lengths):
            self._rows *= 2
        while self._length < max(self.lengths, default=0):
            self._length *= 2

    def _grown(self, old: Tensor | None, like: Tensor) -> Tensor:
        """(1, Hkv, T, D) of any T → a zeroed buffer with the old one's content."""
        new = like.new_zeros(self._rows, like.shape[1], self._length, like.shape[3])
        if old is not None:
            new[: old.shape[0], :, : old.shape[2]] = old
        return new


class PromptLayout:
    """A row's first forward: causal over itself, and remembered."""

    def __init__(self, cache: Cache, place: int) -> None:
        self._cache, self._place = cache, place

    def attend(self, layer: int, heads: Heads) -> Tensor:
        """See `attention.Layout`."""
        length = heads.k.shape[2]
        for buffer, new in zip(self._cache.layer(layer, heads.k), (heads.k, heads.v), strict=True):
            buffer[self._place, :, :length] = new[0]
        mask = None
        if heads.window is not None and heads.window < length:
            at = torch.arange(length, device=heads.q.device)
            distance = at[:, None] - at
            mask = (distance >= 0) & (distance < heads.window)
        return sdpa(
            heads.q, heads.k, heads.v, mask, is_causal=mask is None, scale=heads.scale, enable_gqa=True
        )


class StepLayout:
    """One token of every active row: appended to its own keys, attending to them alone."""

    def __init__(self, cache: Cache, device: torch.device) -> None:
        """Make it after `cache.advance()`: the new token's position is the length less one."""
        self._cache = cache
        self._rows = torch.arange(len(cache.lengths), device=device)
        self._at = torch.tensor(cache.lengths, device=device) - 1  # (n,)
        self._longest = max(cache.lengths)
        self._distance = self._at[:, None] - torch.arange(self._longest, device=device)  # (n, T)

    def attend(self, layer: int, heads: Heads) -> Tensor:
        """(1, H, n, D): one token per row, packed."""
        n = len(self._rows)
        keys, values = self._cache.layer(layer, heads.k)
        keys[self._rows, :, self._at] = heads.k[0].transpose(0, 1)
        values[self._rows, :, self._at] = heads.v[0].transpose(0, 1)
        seen = self._distance >= 0
        if heads.window is not None:
            seen = seen & (self._distance < heads.window)
        out = sdpa(
            heads.q[0].transpose(0, 1).unsqueeze(2),  # (n, H, 1, D)
            keys[:n, :, : self._longest],
            values[:n, :, : self._longest],
            seen[:, None, None],
            scale=heads.scale,
            enable_gqa=True,
        )
        return out.squeeze(2).transpose(0, 1).unsqueeze(0)
