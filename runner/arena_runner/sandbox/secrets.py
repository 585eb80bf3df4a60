"""Values of the secrets a reward names, and keeping them out of everything that is said about it.

A worker is given them with its job. Without a server `JUDGE_KEY` is read from ARENA_SECRET_JUDGE_KEY and from nowhere
else: the prefix is the point, a reward must not get at our own tokens, or at any other variable, by naming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena_runner.sandbox.score import RewardError

PREFIX = "ARENA_SECRET_"
SHORTEST = 4
"""A shorter value is in every text by chance; hiding it would make the text unreadable and say what it is."""


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Name → value, of a run without a server."""
    return {key.removeprefix(PREFIX): value for key, value in environment.items() if key.startswith(PREFIX)}


def secret_values(names: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Name → value; raises RewardError naming those that have none."""
    wanted = tuple(names)
    missing = [name for name in wanted if name not in known]
    if missing:
        message = (
            f"the reward names secrets that have no value here: {', '.join(missing)}; on a server "
            f"use arena secrets set {missing[0]}, without one set {PREFIX}{missing[0]}"
        )
        raise RewardError(message)
    return {name: known[name] for name in wanted}


class Veil:
    """Hides the values of secrets in whatever is told about a reward."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        longest_first = sorted(secrets.items(), key=lambda item: len(item[1]), reverse=True)
        self._hidden = [
            (value, f"(secret {name})") for name, value in longest_first if len(value) >= SHORTEST
        ]

    def over(self, text: str) -> str:
        """The text without them."""
        for value, name in self._hidden:
            text = text.replace(value, name)
        return text
