"""Randomness without state: every number is a function of what it is for.

A stream is named by words (seed, member, iteration …) and hashed with splitmix64; there is no generator whose
state must be saved, and nobody's draw depends on who else draws. Works on Python ints and on int64 tensors
of any device; this module does not import torch.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


def _signed(value: int) -> int:
    """The same 64 bits as a two's complement number, which is what int64 tensors hold."""
    return value - (1 << 64) if value >> 63 else value


def _mix(x: int) -> int:
    """The finaliser of splitmix64: every input bit moves every output bit."""
    x = ((x ^ (x >> 30)) * _MIX1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX2) & _MASK
    return x ^ (x >> 31)


def key(seed: int, *words: int | str) -> int:
    """Name a stream; a signed 64-bit number that differs for every different list of words."""
    state = _mix((seed + _GOLDEN) & _MASK)
    for word in words:
        bits = (
            word
            if isinstance(word, int)
            else int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        )
        state = _mix((state + _GOLDEN + _mix((bits + _GOLDEN) & _MASK)) & _MASK)
    return _signed(state)


def row_key(seed: int, member: int, iteration: int, prompt: int, completion: int) -> int:
    """Name the stream of one sampled completion."""
    return key(seed, "row", member, iteration, prompt, completion)


def rng(seed: int, *words: int | str) -> random.Random:
    """Return a seeded `random.Random` for decisions that are not tensors (mutation, tournament, shuffles)."""
    return random.Random(key(seed, *words))  # noqa: S311 - reproducible on purpose, not for secrets


def uniform(keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Draw one float64 in [0, 1) per element from (stream key, position), both int64 and broadcastable."""
    return (_shift(mix_tensor(keys, positions), 11)).double() * (1.0 / (1 << 53))


def mix_tensor(keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Hash int64 keys with int64 positions to 64 random bits; the tensor twin of one step of `key`."""
    x = keys + (positions + 1) * _signed(_GOLDEN)
    x = (x ^ _shift(x, 30)) * _signed(_MIX1)
    x = (x ^ _shift(x, 27)) * _signed(_MIX2)
    return x ^ _shift(x, 31)


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right without copying the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
