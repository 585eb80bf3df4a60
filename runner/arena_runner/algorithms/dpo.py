"""DPO: raise the chosen answer's log-ratio to the reference above the rejected one's.

Per pair, with r = log π_θ - log π_ref summed over an answer's tokens and m = r(chosen) - r(rejected):

    -(1-s) log sigmoid(β m) - s log sigmoid(-β m)  +  nll_alpha · (-mean over the chosen's tokens of log π_θ)

and a member's loss is the mean over its pairs. Both answers and their prompt are one shared-prefix pack, and a
pair is never split over packs. The reference's two numbers come with the pair: its policy never changes.
Rafailov et al., arXiv 2305.18290; s: Mitchell, "A note on DPO with noisy preferences"; nll_alpha: Pang et al.,
arXiv 2404.19733.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from arena_runner import ops, seeds
from arena_runner.learner import Learner, MemberUpdate
from arena_runner.packing import Group, Pack, apart, pack
from arena_runner.policy_batch import Sums


@dataclass(frozen=True, slots=True)
class DpoSettings:
    """One member's own values."""

    lr: float
    beta: float = 0.1
    label_smoothing: float = 0.0
    nll_alpha: float = 0.0
    max_grad_norm: float = 1.0
    update_epochs: int = 1
    dropout: float = 0.0
    """of the adapter's input; the same for all members of one update"""


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt and its two answers (each with its EOS, appended by the caller)."""

    member: int
    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    reference: tuple[float, float] = (0.0, 0.0)
    """log-probability of the whole chosen and rejected answer under the reference policy"""


def update(
    learner: Learner, pairs: Sequence[Pair], settings: Mapping[int, DpoSettings], *, key: int = 0
) -> dict[int, MemberUpdate]:
    """Take `update_epochs` optimizer steps for every member in `settings`; others stay bit for bit.

    Args:
        learner: what to update.
        pairs: pairs of all members in `settings`.
        settings: each member's own.
        key: names the update's randomness; read only with dropout.
    """
    metrics: dict[int, dict[str, float]] = {m: {} for m in settings}
    for epoch in range(max((s.update_epochs for s in settings.values()), default=0)):
        active = [m for m, s in settings.items() if epoch < s.update_epochs]
        done = accumulate(learner, pairs, settings, active, key=seeds.key(key, epoch))
        norms = learner.optimizer.step(
            {m: settings[m].lr for m in active}, {m: settings[m].max_grad_norm for m in active}
        )
        for member in active:
            metrics[member] |= done[member] | {"grad_norm": norms[member]}
    return {m: MemberUpdate(signal=True, metrics=values) for m, values in metrics.items()}


def accumulate(
    learner: Learner,
    pairs: Sequence[Pair],
    settings: Mapping[int, DpoSettings],
    members: Sequence[int],
    *,
    key: int = 0,
) -> dict[int, dict[str, float]]:
    """Add the members' gradients to the population's; returns their metrics. Takes no optimizer step."""
    wide, count = learner.population.masters, {m: sum(p.member == m for p in pairs) for m in members}
    sums = Sums(members, wide)
    waiting = deque(_packs(learner, pairs, members))
    while waiting:
        piece = waiting.popleft()
        owned = [pairs[group.rows[0] // 2] for group in piece.groups]
        rates = {p.member: settings[p.member].dropout for p in owned}
        logp = ops.logprobs(
            learner.base,
            learner.population,
            piece,
            torch.ones(len(piece.rows), device=piece.rows.device),
            dropout=ops.dropout(piece, rates, key),
        )
        if alone := apart(piece, logp):
            waiting.extendleft(reversed(alone))
            continue
        answers = _answers(logp, owned)
        loss = _loss(answers, [settings[p.member] for p in owned])
        share = torch.tensor([1.0 / count[p.member] for p in owned], dtype=wide.dtype, device=wide.device)
        (loss * share).sum().backward()
        with torch.no_grad():
            margin = answers.chosen - answers.rejected
            sums.add(
                torch.tensor([p.member for p in owned], device=wide.device),
                loss=loss * share,
                margin=margin * share,
                accuracy=((margin > 0).to(wide.dtype) + (margin == 0).to(wide.dtype) / 2) * share,
                chosen_logratio=answers.chosen * share,
                rejected_logratio=answers.rejected * share,
                chosen_nll=-answers.likelihood * share,
            )
    return {m: {n: v for n, v in sums.of(m).items() if n != "tokens"} for m in members}


@torch.no_grad()
def log_probabilities(learner: Learner, pair: Pair, *, reference: bool = False) -> tuple[float, float]:
    """Log-probability of the whole chosen and rejected answer, of the pair's member or of the reference.

    One pair alone in its pack, so that the numbers depend on the pair and the weights and on nothing beside them:
    a policy that equals the reference has a margin of exactly zero.
    """
    (piece,) = _packs(learner, [pair], [pair.member])
    ones = torch.ones(len(piece.rows), device=piece.rows.device)
    logp = ops.logprobs(learner.base, learner.population, piece, ones, reference=reference)
    chosen, rejected = (float(part.sum()) for part in _split(logp, [pair]))
    return chosen, rejected


def margin(learner: Learner, pair: Pair) -> float:
    """Chosen minus rejected log-ratio of the pair's member, without dropout."""
    chosen, rejected = log_probabilities(learner, pair)
    return (chosen - pair.reference[0]) - (rejected - pair.reference[1])


def _packs(learner: Learner, pairs: Sequence[Pair], members: Sequence[int]) -> Iterator[Pack]:
    """Packs of whole pairs, one member after another; a pair's number is half its first row's."""
    wanted = [row for row, pair in enumerate(pairs) if pair.member in members]
    ordered = sorted(wanted, key=lambda row: pairs[row].member)
    groups = [
        Group(p.member, p.prompt_ids, (p.chosen_ids, p.rejected_ids), (2 * row, 2 * row + 1))
        for row in ordered
        for p in [pairs[row]]
    ]
    budget, base = learner.tokens_per_backward, learner.base
    return pack(groups, budget, base.device, shared=base.packs, whole=True)


@dataclass(frozen=True, slots=True)
class _Answers:
    """What a pack says about its n pairs."""

    chosen: Tensor  # (n,) log-ratio to the reference
    rejected: Tensor  # (n,)
    likelihood: Tensor  # (n,) mean log-probability per token of the chosen answer


def _answers(logp_K: Tensor, pairs: Sequence[Pair]) -> _Answers:
    parts = _split(logp_K, pairs)
    totals = torch.stack([part.sum() for part in parts])
    known = totals.new_tensor([x for pair in pairs for x in pair.reference])
    ratios = totals - known
    likelihood = torch.stack([part.mean() for part in parts[::2]])
    return _Answers(ratios[::2], ratios[1::2], likelihood)


def _split(logp_K: Tensor, pairs: Sequence[Pair]) -> tuple[Tensor, ...]:
    """Token log-probabilities of each answer in turn: the chosen, the rejected, the next pair's chosen."""
    lengths = [len(ids) for pair in pairs for ids in (pair.chosen_ids, pair.rejected_ids)]
    return tuple(torch.split(logp_K, lengths))


def _loss(answers: _Answers, settings: Sequence[DpoSettings]) -> Tensor:
    """Of each pair, (n,)."""

    def spread(name: str) -> Tensor:
        return answers.chosen.new_tensor([getattr(s, name) for s in settings])

    scaled, smooth = spread("beta") * (answers.chosen - answers.rejected), spread("label_smoothing")
    preference = -(1 - smooth) * logsigmoid(scaled) - smooth * logsigmoid(-scaled)
    return preference - spread("nll_alpha") * answers.likelihood
