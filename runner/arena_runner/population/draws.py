"""Randomness of evolution without a generator's state: a draw is a function of its key.

A key is (seed, what for, generation, member, …), so a resumed run draws what the uninterrupted one would have,
whatever was drawn in between. `seeds` does the same for tensors; this needs no torch.
"""

from __future__ import annotations

import hashlib

_UNIT = 2.0**-53


def uniform(*key: int | str) -> float:
    """A number in [0, 1), equal on every machine for an equal key."""
    text = "\x1f".join(str(part) for part in key)
    word = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return (word >> 11) * _UNIT


def below(bound: int, *key: int | str) -> int:
    """An index in 0 … bound-1."""
    return min(int(uniform(*key) * bound), bound - 1)
