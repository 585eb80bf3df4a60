"""SFT: cross-entropy on completion tokens with EOS, mean over the tokens of the member's batch.

Prompt tokens are read and never learned. Rows are packed beside each other without seeing each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from arena_runner import ops, seeds
from arena_runner.learner import Learner, MemberUpdate
from arena_runner.packing import Group, apart, pack
from arena_runner.policy_batch import Sums


@dataclass(frozen=True, slots=True)
class SftSettings:
    """One member's own values."""

    lr: float
    max_grad_norm: float = 1.0
    update_epochs: int = 1
    dropout: float = 0.0
    """of the adapter's input; the same for all members of one update"""


@dataclass(frozen=True, slots=True)
class Example:
    """One row: the prompt is read, the target (with its EOS, appended by the caller) is learned."""

    member: int
    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


def update(
    learner: Learner, examples: Sequence[Example], settings: Mapping[int, SftSettings], *, key: int = 0
) -> dict[int, MemberUpdate]:
    """Take `update_epochs` optimizer steps for every member in `settings`; others stay bit for bit.

    Args:
        learner: what to update.
        examples: rows of all members in `settings`.
        settings: each member's own.
        key: names the update's randomness (`seeds.key(seed, "dropout", iteration)`); read only with dropout.
    """
    metrics: dict[int, dict[str, float]] = {m: {} for m in settings}
    for epoch in range(max((s.update_epochs for s in settings.values()), default=0)):
        active = [m for m, s in settings.items() if epoch < s.update_epochs]
        for member, values in accumulate(
            learner, examples, settings, active, key=seeds.key(key, epoch)
        ).items():
            metrics[member] |= values
        norms = learner.optimizer.step(
            {m: settings[m].lr for m in active}, {m: settings[m].max_grad_norm for m in active}
        )
        for member, norm in norms.items():
            metrics[member]["grad_norm"] = norm
    return {m: MemberUpdate(signal=True, metrics=values) for m, values in metrics.items()}


def accumulate(
    learner: Learner,
    examples: Sequence[Example],
    settings: Mapping[int, SftSettings],
    members: Sequence[int],
    *,
    key: int = 0,
) -> dict[int, dict[str, float]]:
    """Add the members' gradients to the population's; returns their metrics. Takes no optimizer step."""
    base, wide = learner.base, learner.population.masters
    groups = [Group(e.member, e.prompt_ids, (e.target_ids,), (row,)) for row, e in enumerate(examples)]
    groups = sorted((g for g in groups if g.member in members), key=lambda g: g.member)
    tokens = {m: sum(len(e.target_ids) for e in examples if e.member == m) for m in members}
    sums = Sums(members, wide)
    waiting = deque(pack(groups, learner.tokens_per_backward, base.device, shared=base.packs))
    while waiting:
        piece = waiting.popleft()
        owners = torch.tensor([examples[row].member for row in piece.rows.tolist()], device=base.device)
        weight = torch.tensor(
            [1.0 / tokens[m] for m in owners.tolist()], dtype=wide.dtype, device=base.device
        )
        dropout = ops.dropout(piece, {g.member: settings[g.member].dropout for g in piece.groups}, key)
        logp = ops.logprobs(base, learner.population, piece, torch.ones_like(weight), dropout=dropout)
        if alone := apart(piece, logp):
            waiting.extendleft(reversed(alone))
            continue
        (-logp * weight).sum().backward()
        sums.add(owners, loss=-logp.detach() * weight)
    return {m: sums.of(m) for m in members}


def log_likelihood(learner: Learner, examples: Sequence[Example]) -> list[float]:
    """Mean log-probability per target token of each row, without dropout: fitness is this, averaged over rows."""
    groups = [Group(e.member, e.prompt_ids, (e.target_ids,), (row,)) for row, e in enumerate(examples)]
    scores = [0.0] * len(examples)
    with torch.no_grad():
        for piece in pack(
            groups, learner.tokens_per_backward, learner.base.device, shared=learner.base.packs
        ):
            ones = torch.ones(len(piece.rows), device=learner.base.device)
            logp = ops.logprobs(learner.base, learner.population, piece, ones)
            for row, value in zip(piece.rows.tolist(), logp.tolist(), strict=True):
                scores[row] += value / len(examples[row].target_ids)
    return scores
