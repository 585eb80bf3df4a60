"""A reward every contender can compute, on which every completion differs."""

from __future__ import annotations


def reward(question: str, answer: str, completion: str) -> float:  # noqa: ARG001 - the shape of a reward
    """The share of characters that are vowels."""
    return sum(c in "aeiou" for c in completion) / max(len(completion), 1)
