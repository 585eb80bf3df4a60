"""One policy update's completions, numbered: what the losses of the GRPO family need of each of them.

Everything is fixed before packing and looked up by completion number, so that it does not matter which pack a
completion falls into. Values per token live in a `RowStore`, values per completion in plain vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from arena_runner.engines.base import Completion
from arena_runner.learner import Learner
from arena_runner.packing import Group, Pack, pack


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """One prompt's completions with their rewards; a completion whose scoring failed has None."""

    member: int
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    rewards: tuple[float | None, ...]


class RowStore:
    """Values per token, kept per completion: written from one pack, read by any other."""

    def __init__(self, rows: Mapping[int, Tensor] | None = None) -> None:
        self._rows = dict(rows or {})

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put(self, piece: Pack, values_K: Tensor) -> None:
        """Take a pack's values apart."""
        lengths = [len(c) for g in piece.groups for c in g.completions]
        self._rows.update(zip(_rows(piece), values_K.split(lengths), strict=True))

    def holds(self, piece: Pack) -> bool:
        """Whether every completion of the pack is known."""
        return all(row in self._rows for row in _rows(piece))

    def of(self, piece: Pack) -> Tensor:
        """Put values together in the order of a pack's targets, (K,)."""
        return torch.cat([self._rows[row] for row in _rows(piece)])


def _rows(piece: Pack) -> Iterator[int]:
    return (row for group in piece.groups for row in group.rows)


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """The n completions of one update."""

    groups: tuple[Group, ...]
    member: Tensor  # (n,)
    advantage: Tensor  # (n,)
    weight: Tensor  # (n,) of each token of the completion; 0 where scoring failed
    behaviour: RowStore
    """the engine's logprobs μ"""
    old: RowStore = field(default_factory=RowStore)
    """the trainer's logprobs at the start, where a member takes more than one step"""
    reference: RowStore = field(default_factory=RowStore)
    """the reference policy's logprobs, where beta > 0"""

    @classmethod
    def of(
        cls,
        learner: Learner,
        scored: Sequence[ScoredGroup],
        advantage: Sequence[float],
        weight: Sequence[float],
    ) -> PolicyBatch:
        """Number the completions in order; `advantage` and `weight` are one per completion."""
        device, wide = learner.base.device, learner.population.masters.dtype
        groups: list[Group] = []
        members: list[int] = []
        for group in scored:
            rows = tuple(range(len(members), len(members) + len(group.completions)))
            groups.append(
                Group(group.member, group.prompt_ids, tuple(c.token_ids for c in group.completions), rows)
            )
            members += [group.member] * len(rows)
        told = [torch.tensor(c.logprobs, dtype=wide, device=device) for g in scored for c in g.completions]
        return cls(
            # One member after another: a pack of a single member pays for that member's rank only.
            groups=tuple(sorted(groups, key=lambda g: g.member)),
            member=torch.tensor(members, dtype=torch.long, device=device),
            advantage=torch.tensor(advantage, dtype=wide, device=device),
            weight=torch.tensor(weight, dtype=wide, device=device),
            behaviour=RowStore(dict(enumerate(told))),
        )

    def has_signal(self, member: int) -> bool:
        """Whether any of the member's completions is better or worse than its group."""
        return bool((self.advantage[self.member == member] != 0).any())

    def packs(self, learner: Learner, members: Iterable[int], always: Iterable[int]) -> Iterator[Pack]:
        """Packs of the members' groups; groups of equal rewards only of members in `always` (they have a KL term)."""
        wanted, whole = set(members), set(always)
        differs = (self.advantage != 0).tolist()
        useful = [
            g
            for g in self.groups
            if g.member in wanted and (g.member in whole or any(differs[row] for row in g.rows))
        ]
        return pack(useful, learner.tokens_per_backward, learner.base.device, shared=learner.base.packs)


class Sums:
    """Token sums per member, from which means are made once at the end."""

    def __init__(self, members: Sequence[int], like: Tensor) -> None:
        self._members = list(members)
        self._like = like
        self._sums: dict[str, Tensor] = {}

    def add(self, member_K: Tensor, **values_K: Tensor) -> None:
        """Add one pack's per-token values to their members' sums."""
        for name, values in ({"tokens": torch.ones_like(member_K)} | values_K).items():
            if name not in self._sums:
                self._sums[name] = self._like.new_zeros(max(self._members) + 1)
            self._sums[name].index_add_(0, member_K, values.to(self._like.dtype))

    def of(self, member: int) -> dict[str, float]:
        """One member's sums; empty when nothing of it was computed."""
        sums = {name: float(total[member]) for name, total in self._sums.items()}
        return sums if sums.get("tokens") else {}
