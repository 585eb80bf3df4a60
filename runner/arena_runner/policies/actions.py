"""Stochastic policies: sampling, log-probability and entropy of choices and of floats, all members at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Dice, Memory, Seen, allowed
from arena_runner.policies.spaces import Choice, Continuous, SpaceError

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def sample(does: Choice | Continuous, out: Tensor, log_std: Tensor | None, seen: Seen, dice: Dice) -> Tensor:
    """Draw actions (N, B, k) from what a network gave (N, B, width): inverse CDF, one uniform per choice."""
    if isinstance(does, Continuous):
        assert log_std is not None
        return out + log_std.exp().unsqueeze(1) * dice.normal(does.width)
    drawn = dice.uniform(len(does.sizes))
    picked = []
    for n, scores in enumerate(_choices(does, out, seen)):
        reached = scores.softmax(-1).cumsum(-1)
        number = (reached < drawn[..., n : n + 1] * reached[..., -1:]).sum(-1)
        picked.append(number.clamp(max=does.sizes[n] - 1))
    return torch.stack(picked, -1)


def likeliest(does: Choice | Continuous, out: Tensor, seen: Seen) -> Tensor:
    """The mode: the mean, or the highest score of each choice."""
    if isinstance(does, Continuous):
        return out
    return torch.stack([scores.argmax(-1) for scores in _choices(does, out, seen)], -1)


def log_prob(
    does: Choice | Continuous, out: Tensor, log_std: Tensor | None, seen: Seen, actions: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probability of actions and entropy of the policy, (N, B) each, summed over the parts of an action."""
    if isinstance(does, Continuous):
        assert log_std is not None
        wide = log_std.unsqueeze(1)
        distance = (actions - out) * (-wide).exp()
        likely = (-0.5 * distance.square() - wide - HALF_LOG_TWO_PI).sum(-1)
        return likely, (wide + 0.5 + HALF_LOG_TWO_PI).sum(-1).expand_as(likely)
    likely = entropy = torch.zeros(())
    for n, scores in enumerate(_choices(does, out, seen)):
        logs = scores.log_softmax(-1)
        likely = likely + logs.gather(-1, actions[..., n : n + 1]).squeeze(-1)
        entropy = entropy - (logs.exp() * logs).sum(-1)
    return likely, entropy


def bounds(does: Continuous) -> tuple[Tensor, Tensor]:
    """Middle and half range of every value of an action."""
    low, high = torch.tensor(does.low), torch.tensor(does.high)
    return (low + high) / 2, (high - low) / 2


def unscaled(does: Continuous, actions: Tensor) -> Tensor:
    """Actions of the environment in [-1, 1], as networks see them."""
    middle, half = bounds(does)
    return (actions - middle) / half


def scaled(does: Continuous, actions: Tensor) -> Tensor:
    """Actions in [-1, 1] as the environment wants them."""
    middle, half = bounds(does)
    return middle + half * actions.clamp(-1, 1)


def bounded(does: Choice | Continuous, name: str) -> Continuous:
    """The space of an algorithm that needs floats between finite bounds; SpaceError for any other."""
    if not isinstance(does, Continuous):
        raise SpaceError(f"{name} chooses floats: it needs a Box action space")
    if not does.bounded:
        raise SpaceError(f"{name} needs an action space with finite bounds")
    return does


def untaught(group: Group, dice: Dice) -> Acted | None:
    """Any action at all while nothing has been learned: an untrained actor would try the middle of the range only."""
    if dice.explored * dice.rows >= group.training.learning_delay:
        return None
    does = group.spaces.does
    assert isinstance(does, Continuous)
    return Acted(scaled(does, 2 * dice.uniform(does.width) - 1))


def noisy(group: Group, wanted: Tensor, dice: Dice, memory: Memory) -> Acted:
    """A deterministic action in [-1, 1] with exploration noise, correlated in time where the manifest says so."""
    if (any_action := untaught(group, dice)) is not None:
        return any_action
    does = group.spaces.does
    assert isinstance(does, Continuous)
    draw = dice.normal(does.width)
    sigma, centre = float(group.fixed("expl_noise")), float(group.fixed("mean_noise"))
    if not group.fixed("O_U_noise"):
        return Acted(scaled(does, wanted + centre + sigma * draw))
    theta, dt = float(group.fixed("theta")), float(group.fixed("dt"))
    before = memory.get("noise", torch.zeros_like(draw))
    noise = before + theta * (centre - before) * dt + sigma * math.sqrt(dt) * draw
    return Acted(scaled(does, wanted + noise), memory={"noise": noise})


def _choices(does: Choice, out: Tensor, seen: Seen) -> Iterator[Tensor]:
    yield from (
        allowed(out, seen).split(list(does.sizes), -1) if len(does.sizes) > 1 else (allowed(out, seen),)
    )
