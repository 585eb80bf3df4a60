"""The loss of the GRPO family, in one place; its presets (GSPO, CISPO, DAPO, Dr. GRPO) are settings of it.

What a member minimises over its whole update batch, per token t of completion i:

    w · -min(rho A, clip(rho, 1-ε_low, 1+ε_high) A)  +  β · kl        `clip`
    w · -sg(min(rho, ε_max)) A log π_θ                +  β · kl        `cispo`, sg: no gradient through it

with one rho per token, or one per completion, exp(mean_t log rho_t).

There rho = π_θ/π_old (the trainer's own policy at the start of the update), w = min(π_old/μ, cap) corrects for
the engine's policy μ, A is the advantage inside the group, and a fixed weight per completion makes the
normalisation. The weights are known before anything is packed, so that micro-batches change nothing; members
do not share parameters, so that the sum over members has every member's own gradient.

It does not sample, score or schedule: `train` does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, stdev

import torch
from torch import Tensor

from arena_runner import ops
from arena_runner.learner import Learner, MemberUpdate
from arena_runner.packing import Pack, apart
from arena_runner.policy_batch import PolicyBatch, ScoredGroup, Sums


class Normalisation(StrEnum):
    """How a member's token losses become one number."""

    SEQUENCE = "sequence"
    """mean over sequences of the mean over their tokens (GRPO)"""
    TOKEN = "token"  # noqa: S105 - not a password
    """sum over all tokens divided by their number (DAPO)"""
    CONSTANT = "constant"
    """sum divided by sequences times the longest allowed completion (Dr. GRPO)"""


class Advantage(StrEnum):
    """How rewards of a group become advantages."""

    MEAN_STD = "mean_std"
    MEAN_ONLY = "mean_only"


class Surrogate(StrEnum):
    """What stands for the policy's improvement."""

    CLIP = "clip"
    CISPO = "cispo"


class Level(StrEnum):
    """What has one ratio."""

    TOKEN = "token"  # noqa: S105 - not a password
    SEQUENCE = "sequence"


class Kl(StrEnum):
    """Estimator of KL(π_θ‖π_ref), with d = log π_θ - log π_ref."""

    K3_IS = "k3_is"
    """rho (e^-d + d - 1), rho differentiated: the unbiased gradient"""
    K3 = "k3"
    """e^-d + d - 1, original GRPO: on-policy its gradient is that of KL(π_ref‖π_θ)"""
    K2 = "k2"
    """d²/2, rho detached off-policy"""
    K1_REWARD = "k1_reward"
    """-β d, detached, added to the advantage"""


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """One member's own values; every field may differ between members."""

    lr: float
    beta: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    """for `cispo` ε_max, the cap of the ratio itself"""
    max_grad_norm: float = 1.0
    update_epochs: int = 1
    temperature: float = 1.0
    """the sampling temperature; logprobs are trained at it"""
    normalisation: Normalisation = Normalisation.SEQUENCE
    advantage: Advantage = Advantage.MEAN_STD
    kl: Kl = Kl.K3_IS
    surrogate: Surrogate = Surrogate.CLIP
    level: Level = Level.TOKEN
    importance_cap: float | None = 2.0
    """largest w; None: w is 1"""
    max_completion_tokens: int = 0
    """only read by `constant`"""

    @property
    def ceiling(self) -> float:
        """The ratio above which a better token gains nothing more."""
        return self.clip_high if self.surrogate is Surrogate.CISPO else 1 + self.clip_high

    @property
    def floor(self) -> float:
        """The ratio below which a worse token loses nothing more; `cispo` has none."""
        return 0.0 if self.surrogate is Surrogate.CISPO else 1 - self.clip_low

    @property
    def largest_w(self) -> float:
        """`importance_cap` as a number."""
        return math.inf if self.importance_cap is None else self.importance_cap


def update(
    learner: Learner, groups: Sequence[ScoredGroup], settings: Mapping[int, GrpoSettings]
) -> dict[int, MemberUpdate]:
    """Take `update_epochs` optimizer steps for every member in `settings`; others stay bit for bit.

    A member without signal (all its groups have equal rewards) keeps weights, moments and step count too.
    """
    batch = prepare(learner, groups, settings)
    signal = {m: batch.has_signal(m) for m in settings}
    metrics: dict[int, dict[str, float]] = {m: {} for m in settings}
    for epoch in range(max((s.update_epochs for s in settings.values()), default=0)):
        active = [m for m, s in settings.items() if signal[m] and epoch < s.update_epochs]
        for member, values in accumulate(learner, batch, settings, active).items():
            metrics[member] |= values
        norms = learner.optimizer.step(
            {m: settings[m].lr for m in active}, {m: settings[m].max_grad_norm for m in active}
        )
        for member, norm in norms.items():
            metrics[member]["grad_norm"] = norm
    return {m: MemberUpdate(signal[m], metrics[m]) for m in settings}


def prepare(
    learner: Learner, groups: Sequence[ScoredGroup], settings: Mapping[int, GrpoSettings]
) -> PolicyBatch:
    """Fix advantages and weights of every completion, before anything is packed."""
    spread = [a for g in groups for a in advantages(g.rewards, settings[g.member].advantage)]
    return PolicyBatch.of(learner, groups, spread, weights(groups, settings))


def advantages(rewards: Sequence[float | None], how: Advantage) -> list[float]:
    """Rewards of one group minus their mean, over std + 1e-4 for `mean_std`; failed completions get 0."""
    scored = [r for r in rewards if r is not None]
    if len(scored) < 2 or min(scored) == max(scored):
        return [0.0] * len(rewards)  # exactly: a mean of equal floats may be off by one bit
    centre = mean(scored)
    scale = stdev(scored) + 1e-4 if how is Advantage.MEAN_STD else 1.0
    return [0.0 if r is None else (r - centre) / scale for r in rewards]


def weights(groups: Sequence[ScoredGroup], settings: Mapping[int, GrpoSettings]) -> list[float]:
    """The weight of every token of each completion, so that a member's loss is a plain sum."""
    lengths: dict[int, list[int]] = {}
    for group in groups:
        scored = [
            len(c.token_ids) for c, r in zip(group.completions, group.rewards, strict=True) if r is not None
        ]
        lengths.setdefault(group.member, []).extend(scored)
    spread = []
    for group in groups:
        own, rule = lengths[group.member], settings[group.member]
        for completion, reward in zip(group.completions, group.rewards, strict=True):
            spread.append(0.0 if reward is None else _weight(rule, len(completion.token_ids), own))
    return spread


def _weight(settings: GrpoSettings, length: int, lengths: Sequence[int]) -> float:
    match settings.normalisation:
        case Normalisation.SEQUENCE:
            return 1.0 / (len(lengths) * length)
        case Normalisation.TOKEN:
            return 1.0 / sum(lengths)
        case Normalisation.CONSTANT:
            return 1.0 / (len(lengths) * (settings.max_completion_tokens or max(lengths)))


def accumulate(
    learner: Learner, batch: PolicyBatch, settings: Mapping[int, GrpoSettings], members: Sequence[int]
) -> dict[int, dict[str, float]]:
    """Add the members' gradients to the population's; returns their metrics. Takes no optimizer step."""
    if not members:
        return {}
    sums = Sums(members, batch.weight)
    held = [m for m in members if settings[m].beta > 0]
    packs = list(batch.packs(learner, members, held))
    if not batch.old and any(settings[m].update_epochs > 1 for m in members):
        _remember(learner, batch, settings, packs)
    waiting = deque(packs)
    while waiting:
        piece = waiting.popleft()
        knobs = Knobs(batch, piece, settings)
        reference = _reference(learner, batch, piece, knobs)
        now = ops.logprobs(learner.base, learner.population, piece, knobs.of("temperature"))
        if alone := apart(piece, now):
            waiting.extendleft(reversed(alone))
            continue
        old = batch.old.of(piece) if batch.old else now.detach()
        logp = Logprobs(now, old, reference, batch.behaviour.of(piece))
        token_loss(logp, batch, piece, knobs, sums).backward()
    return {m: _means(sums.of(m)) for m in members}


def _remember(
    learner: Learner, batch: PolicyBatch, settings: Mapping[int, GrpoSettings], packs: Sequence[Pack]
) -> None:
    """Record the trainer's policy at the start of an update of several steps, by the same packs as the update."""
    for piece in packs:
        temperature = Knobs(batch, piece, settings).of("temperature")
        with torch.no_grad():
            batch.old.put(piece, ops.logprobs(learner.base, learner.population, piece, temperature))


def _reference(learner: Learner, batch: PolicyBatch, piece: Pack, knobs: Knobs) -> Tensor | None:
    """Logprobs of the policy the experiment started from, computed once; None when nobody in the pack has a KL term."""
    if not any(knobs.settings[g.member].beta > 0 for g in piece.groups):
        return None
    if not batch.reference.holds(piece):
        with torch.no_grad():
            logp = ops.logprobs(
                learner.base, learner.population, piece, knobs.of("temperature"), reference=True
            )
        batch.reference.put(piece, logp)
    return batch.reference.of(piece)


class Knobs:
    """Members' settings spread over the targets of one pack."""

    def __init__(self, batch: PolicyBatch, piece: Pack, settings: Mapping[int, GrpoSettings]) -> None:
        self.settings = settings
        self._like = batch.weight
        self._owners: list[int] = batch.member[piece.rows].tolist()

    def of(self, name: str) -> Tensor:
        """A numeric setting, (K,)."""
        table = {m: float(getattr(s, name)) for m, s in self.settings.items()}
        return torch.tensor(
            [table[m] for m in self._owners], dtype=self._like.dtype, device=self._like.device
        )

    def uses(self, choice: StrEnum | None, name: str) -> Tensor:
        """Whose member has made this choice, (K,) bool."""
        table = {m: getattr(s, name) is choice for m, s in self.settings.items()}
        chosen = [table[m] for m in self._owners]
        return torch.tensor(chosen, dtype=torch.bool, device=self._like.device)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Four policies' opinions of the same K tokens; only `now` has a gradient."""

    now: Tensor
    old: Tensor
    reference: Tensor | None
    behaviour: Tensor


def token_loss(logp: Logprobs, batch: PolicyBatch, piece: Pack, knobs: Knobs, sums: Sums) -> Tensor:
    """The sum over the pack's tokens of weight times loss."""
    advantage, beta = batch.advantage[piece.rows], knobs.of("beta")
    each = (logp.now - logp.old).exp()
    kl = torch.zeros_like(logp.now)
    if logp.reference is not None:
        d = logp.now - logp.reference
        in_reward = knobs.uses(Kl.K1_REWARD, "kl")
        advantage = advantage - torch.where(in_reward, beta * d.detach(), 0.0)
        beta = torch.where(in_reward, 0.0, beta)
        kl = _kl(d, each, knobs)
    ratio = _ratio(logp, piece, knobs)
    low, high = knobs.of("floor"), knobs.of("ceiling")
    policy = -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    weighed = -(ratio.detach().minimum(high) * advantage) * logp.now
    policy = torch.where(knobs.uses(Surrogate.CISPO, "surrogate"), weighed, policy)
    mismatch = logp.old - logp.behaviour
    importance = torch.where(
        knobs.uses(None, "importance_cap"), 1.0, mismatch.exp().minimum(knobs.of("largest_w"))
    )
    loss = batch.weight[piece.rows] * (importance * policy + beta * kl)
    with torch.no_grad():
        sums.add(
            batch.member[piece.rows],
            loss=loss,
            kl=kl,
            clipped=((ratio < low) & (advantage < 0)) | ((ratio > high) & (advantage > 0)),
            ratio=ratio,
            mismatch=mismatch.abs(),
            surprise=-logp.now,
            trust=mismatch.exp(),
            trust_squared=(2 * mismatch).exp(),
        )
    return loss.sum()


def _ratio(logp: Logprobs, piece: Pack, knobs: Knobs) -> Tensor:
    """pi_theta/pi_old of each token's unit, (K,): the token itself, or its whole completion (geometric mean)."""
    log_ratio = logp.now - logp.old
    whole = knobs.uses(Level.SEQUENCE, "level")
    if not whole.any():  # spares token-level runs, nearly all, the two scatters below
        return log_ratio.exp()
    _, completion = piece.rows.unique(return_inverse=True)
    count = torch.zeros_like(log_ratio).index_add(0, completion, torch.ones_like(log_ratio))
    total = torch.zeros_like(log_ratio).index_add(0, completion, log_ratio)
    return torch.where(whole, (total / count.clamp(min=1))[completion], log_ratio).exp()


def _kl(d: Tensor, ratio: Tensor, knobs: Knobs) -> Tensor:
    """Each member's own estimator, (K,)."""
    k3 = (-d).exp() + d - 1
    kl = torch.where(knobs.uses(Kl.K3_IS, "kl"), ratio * k3, k3)
    kl = torch.where(knobs.uses(Kl.K2, "kl"), ratio.detach() * d * d / 2, kl)
    return torch.where(knobs.uses(Kl.K1_REWARD, "kl"), d, kl)


def _means(sums: Mapping[str, float]) -> dict[str, float]:
    """What people read; entropy is estimated by the sampled tokens' own surprise."""
    if not sums:
        return {}
    tokens = sums["tokens"]
    return {
        "loss": sums["loss"],
        "kl": sums["kl"] / tokens,
        "clip_fraction": sums["clipped"] / tokens,
        "ratio_mean": sums["ratio"] / tokens,
        "logp_diff": sums["mismatch"] / tokens,
        "entropy": sums["surprise"] / tokens,
        "ess": sums["trust"] ** 2 / (tokens * sums["trust_squared"]),
        "tokens": tokens,
    }
