"""The same random group of completions in every contender, from its shape alone."""

from __future__ import annotations

import random

GROUP = 8


def group(
    prompt: int, tokens: int, *, ragged: bool, vocabulary: int
) -> tuple[list[int], list[list[int]], list[float]]:
    """A prompt, eight completions and their rewards; ragged ones have a quarter to all of the tokens."""
    dice = random.Random(f"{prompt} {tokens} {ragged}")  # noqa: S311 - not a secret

    def ids(length: int) -> list[int]:
        return [dice.randrange(3, vocabulary) for _ in range(length)]

    lengths = [tokens if not ragged or c == 0 else dice.randint(tokens // 4, tokens) for c in range(GROUP)]
    return ids(prompt), [ids(length) for length in lengths], [float(c % 5) for c in range(GROUP)]
