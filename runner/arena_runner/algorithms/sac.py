"""SAC: reward and entropy, weighed by a temperature that is learned (Haarnoja et al., arXiv 1812.05905).

The actor's design carries the logarithm of the temperature as its one free number, so it is copied, saved and stepped
with the actor. An action is a squashed Gaussian; its density is corrected for the squashing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from arena_gitops.spec.knobs import Knobs
from arena_runner.algorithms import ddpg
from arena_runner.policies import actions as policy
from arena_runner.policies.design import Design, with_heads
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen
from arena_runner.policies.spaces import Choice, Continuous

LEARNS: Literal["replay"] = "replay"
TWINS: Mapping[str, str] = {"critic_target": "critic", "second_target": "second"}
NARROWEST, WIDEST = -20.0, 2.0
"""bounds of the logarithm of a deviation"""


def draws(does: Choice | Continuous) -> int:
    """An action now and one after."""
    return 2 * does.width


def networks(body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
    """An actor that gives mean and deviation, and two critics."""
    width = policy.bounded(does, knobs.name).width
    critic = with_heads(body, ("value", 1), extra=width)
    actor = with_heads(body, ("mean", width), ("spread", width)).model_copy(update={"log_std": 1})
    return {"actor": actor, "critic": critic, "second": critic}


def squashed(group: Group, seen: Seen, noise: Tensor) -> tuple[Tensor, Tensor]:
    """An action in (-1, 1) drawn with this noise, and its log-density (N, B)."""
    actor = group.nets["actor"]
    latent = actor.latent(seen)
    mean, spread = actor.head(latent, 0), actor.head(latent, 1).clamp(NARROWEST, WIDEST)
    raw = mean + spread.exp() * noise
    density = -0.5 * noise.square() - spread - policy.HALF_LOG_TWO_PI
    # log(1 - tanh(x)^2), without loss of digits where tanh is near one
    squash = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
    return torch.tanh(raw), (density - squash).sum(-1)


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """The squashed mean."""
    actor = group.nets["actor"]
    return Acted(policy.scaled(ddpg.does(group), torch.tanh(actor.head(actor.latent(seen), 0))))


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """A draw from the policy."""
    if (any_action := policy.untaught(group, dice)) is not None:
        return any_action
    does = ddpg.does(group)
    return Acted(policy.scaled(does, squashed(group, seen, dice.normal(does.width))[0]))


def temperature(group: Group) -> Tensor:
    """What entropy is worth (N, 1)."""
    return group.nets["actor"].params["log_std"].exp()


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step of critics, actor and temperature; targets follow."""
    assert batch.noise is not None
    now, ahead = batch.noise.chunk(2, -1)
    target = targets(group, batch, ahead)
    done = policy.unscaled(ddpg.does(group), batch.actions)
    total = torch.zeros(len(group))
    for role in ("critic", "second"):
        critic = group.nets[role]
        loss = batch.mean((critic(batch.seen, done).squeeze(-1) - target).square())
        critic.minimise(loss.sum(), group.of("lr_critic"))
        total += loss.detach()
    density = climb(group, batch, now)
    for twin, role in TWINS.items():
        group.nets[twin].follow(group.nets[role], group.of("tau"))
    figures = {"critic_loss": total, "entropy": -batch.mean(density)}
    return {**figures, "temperature": temperature(group).detach().squeeze(-1)}


@torch.no_grad()
def targets(group: Group, batch: Batch, noise: Tensor) -> Tensor:
    """What the lesser critic says of the policy's next action, with its entropy (N, B)."""
    assert batch.after is not None
    action, density = squashed(group, batch.after, noise)
    told = [group.nets[role](batch.after, action).squeeze(-1) for role in ("critic_target", "second_target")]
    return ddpg.bellman(group, batch, torch.minimum(*told) - temperature(group) * density)


def climb(group: Group, batch: Batch, noise: Tensor) -> Tensor:
    """One step of actor and temperature; the density of the actions drawn."""
    action, density = squashed(group, batch.seen, noise)
    told = [group.nets[role](batch.seen, action).squeeze(-1) for role in ("critic", "second")]
    weight, goal = temperature(group), group.fixed("target_entropy")
    goal = -ddpg.does(group).width if goal is None else goal
    policy_loss = batch.mean(weight.detach() * density - torch.minimum(*told))
    temperature_loss = -batch.mean(weight.log() * (density.detach() + goal))
    group.nets["actor"].minimise((policy_loss + temperature_loss).sum(), group.of("lr_actor"))
    return density.detach()
