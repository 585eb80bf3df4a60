"""Shared-prefix packs: a group of completions and its prompt become one sequence `[prompt, c1 … cG]`.

Position ids restart after the prompt, so every completion looks as if it alone followed the prompt. A
completion's last token is predicted but never fed, because nothing follows it. Packs are filled in order up
to a token budget; a group larger than the budget is split between completions and its prompt repeated, which
changes no gradient. Which pack a group falls into depends only on lengths and order, never on time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch


@dataclass(frozen=True, slots=True)
class Group:
    """One prompt of one member with the token ids that followed it, in a fixed order."""

    member: int
    prompt_ids: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]
    """global number of each completion: what the caller's per-completion vectors are indexed by"""

    @property
    def tokens(self) -> int:
        """Tokens the group feeds to the model in a pack."""
        return len(self.prompt_ids) + sum(len(c) - 1 for c in self.completions)

    @property
    def padded_tokens(self) -> int:
        """Tokens it feeds where every completion repeats the prompt."""
        return sum(len(self.prompt_ids) + len(c) - 1 for c in self.completions)


@dataclass(frozen=True, slots=True)
class Segment:
    """Where one group lies in its pack."""

    start: int
    prompt: int
    """tokens of the prompt"""
    inputs: tuple[int, ...]
    """tokens fed of each completion: its length minus one"""

    @property
    def stop(self) -> int:
        """One past the group's last token."""
        return self.start + self.prompt + sum(self.inputs)


@dataclass(frozen=True, slots=True)
class Pack:
    """Tensors of one forward: T fed tokens, K predicted tokens."""

    input_ids: torch.Tensor  # (T,)
    position_ids: torch.Tensor  # (T,)
    members: torch.Tensor  # (T,) the member each fed token belongs to
    segments: tuple[Segment, ...]
    groups: tuple[Group, ...]
    source: torch.Tensor  # (K,) which fed token predicts
    targets: torch.Tensor  # (K,) the token predicted
    rows: torch.Tensor  # (K,) global number of the completion the target belongs to

    @property
    def tokens(self) -> int:
        """Tokens fed."""
        return self.input_ids.numel()


def pack(
    groups: Iterable[Group],
    tokens_per_backward: int,
    device: torch.device | str = "cpu",
    *,
    shared: bool = True,
    whole: bool = False,
) -> Iterator[Pack]:
    """Fill packs in order; one completion longer than the budget gets a pack of its own.

    `shared=False` counts tokens as the padded path will feed them (`BaseModel.packs`); `whole=True` keeps every
    group in one piece, for losses that compare its completions, also where it is longer than the budget.
    """
    waiting: list[Group] = []
    for group in groups:
        for piece in [group] if whole else _split(group, tokens_per_backward, shared=shared):
            filled = sum(_fed(g, shared=shared) for g in waiting)
            if waiting and filled + _fed(piece, shared=shared) > tokens_per_backward:
                yield _tensors(waiting, device)
                waiting = []
            waiting.append(piece)
    if waiting:
        yield _tensors(waiting, device)


def apart(piece: Pack, logprobs_K: torch.Tensor) -> list[Pack]:
    """One pack for each member where some logprobs of a mixed pack are no numbers; else nothing.

    A member that has diverged must stay alone: in a backward pass zero times NaN would reach its neighbours' gradients.
    """
    members = list(dict.fromkeys(group.member for group in piece.groups))
    if len(members) == 1 or bool(logprobs_K.isfinite().all()):
        return []
    return [
        _tensors([group for group in piece.groups if group.member == member], piece.input_ids.device)
        for member in members
    ]


def _fed(group: Group, *, shared: bool) -> int:
    return group.tokens if shared else group.padded_tokens


def _split(group: Group, budget: int, *, shared: bool) -> Iterator[Group]:
    """Cut a group between completions so that each piece fits, repeating the prompt."""
    first = 0
    for last in range(1, len(group.completions) + 1):
        whole = last == len(group.completions)
        if whole or _fed(_part(group, first, last + 1), shared=shared) > budget:
            yield _part(group, first, last)
            first = last


def _part(group: Group, first: int, last: int) -> Group:
    return Group(group.member, group.prompt_ids, group.completions[first:last], group.rows[first:last])


def _tensors(groups: Sequence[Group], device: torch.device | str) -> Pack:
    ids: list[int] = []
    positions: list[int] = []
    members: list[int] = []
    segments: list[Segment] = []
    source: list[int] = []
    rows: list[int] = []
    for group in groups:
        start, prompt = len(ids), len(group.prompt_ids)
        assert prompt, "a group needs a prompt"
        assert all(group.completions), "a completion needs at least one token"
        ids += group.prompt_ids
        positions += range(prompt)
        for row, completion in zip(group.rows, group.completions, strict=True):
            source += [start + prompt - 1, *range(len(ids), len(ids) + len(completion) - 1)]
            rows += [row] * len(completion)
            ids += completion[:-1]
            positions += range(prompt, prompt + len(completion) - 1)
        segments.append(Segment(start, prompt, tuple(len(c) - 1 for c in group.completions)))
        members += [group.member] * (len(ids) - start)
    targets = list(chain.from_iterable(chain.from_iterable(g.completions for g in groups)))
    return Pack(
        input_ids=torch.tensor(ids, device=device),
        position_ids=torch.tensor(positions, device=device),
        members=torch.tensor(members, device=device),
        segments=tuple(segments),
        groups=tuple(groups),
        source=torch.tensor(source, device=device),
        targets=torch.tensor(targets, device=device),
        rows=torch.tensor(rows, device=device),
    )
