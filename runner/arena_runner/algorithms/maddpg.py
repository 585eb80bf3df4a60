"""MADDPG: actors that see their own part, critics that see everything (Lowe et al., arXiv 1706.02275).

Each agent has an actor and a critic; the critic is told what all agents see and do, so that the others are no riddle
while it learns, and is left behind when the actor acts. An agent that chooses among actions does so by the highest
score; the critic climbs through a straight-through Gumbel draw (arXiv 1611.01144). With one agent that acts in floats it
is DDPG.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest.network import Cnn
from arena_runner.algorithms import ddpg
from arena_runner.policies import actions as policy
from arena_runner.policies.crowd import acted_by, joined, of_agent, seen_by
from arena_runner.policies.design import Design, DesignError, with_heads
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen, allowed
from arena_runner.policies.spaces import Choice, Crowd

LEARNS: Literal["replay"] = "replay"
TWINS: Mapping[str, str] = {"actor_target": "actor", "critic_target": "critic"}
MANY = True
"""it trains several agents"""
CALM = 1e-3
"""weight of the square of choosers' scores in their loss, which keeps them from running away from the draw's noise"""
LEAST = 1e-6
"""distance that a uniform number keeps from 0 and 1 before two logarithms are taken of it"""


def draws(crowd: Crowd) -> int:
    """A Gumbel draw for every score of the agents that choose."""
    return sum(own.does.width for own in crowd.agents.values() if isinstance(own.does, Choice))


def networks(bodies: Mapping[str, Design], crowd: Crowd, knobs: Knobs) -> dict[str, Design]:
    """An actor for every agent, and a critic that sees all parts and, beside them, all actions."""
    found = {}
    for own in crowd.agents.values():
        if not isinstance(own.does, Choice):
            policy.bounded(own.does, knobs.name)
    beside = sum(own.does.width for own in crowd.agents.values())
    for agent, own in crowd.agents.items():
        body = bodies[agent]
        if isinstance(body.encoder, Cnn):
            raise DesignError(
                f"{knobs.name}: a critic that sees the images of several agents has no room yet"
            )
        found[f"{agent}/actor"] = with_heads(body, ("action", own.does.width))
        everything = body.model_copy(update={"sees": crowd.sees})
        found[f"{agent}/critic"] = with_heads(everything, ("value", 1), extra=beside)
    return found


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """Every actor's action."""
    done = []
    for agent, own in group.crowd.agents.items():
        part, mine = group.agent(agent), seen_by(seen, agent)
        if isinstance(own.does, Choice):
            done.append(policy.likeliest(own.does, part.nets["actor"](mine), mine))
        else:
            done.append(policy.scaled(own.does, ddpg.wanted(part, mine)))
    return Acted(joined(group.crowd, done))


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """Choices drawn by their scores, floats with noise."""
    done: list[Tensor] = []
    after: dict[str, Tensor] = {}
    for agent, own in group.crowd.agents.items():
        part, mine = group.agent(agent), seen_by(seen, agent)
        if isinstance(own.does, Choice):
            done.append(policy.sample(own.does, part.nets["actor"](mine), None, mine, dice))
            continue
        acted = policy.noisy(part, ddpg.wanted(part, mine), dice, seen_by(memory, agent))
        done.append(acted.actions)
        after |= {f"{agent}/{name}": value for name, value in acted.memory.items()}
    return Acted(joined(group.crowd, done), memory=after)


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step of every critic, then of every actor; targets follow. Figures are means over agents."""
    crowd = group.crowd
    assert batch.after is not None
    done = {agent: entered(crowd, batch.actions, agent) for agent in crowd.agents}
    with torch.no_grad():
        ahead = torch.cat([chosen(group, batch.after, agent) for agent in crowd.agents], -1)
    beside = torch.cat(list(done.values()), -1)
    losses, means = [], []
    for agent in crowd.agents:
        own, part = group.agent(agent), of_agent(crowd, batch, agent)
        with torch.no_grad():
            after = own.nets["critic_target"](batch.after, ahead).squeeze(-1)
            target = ddpg.bellman(own, part, after)
        critic = own.nets["critic"]
        loss = batch.mean((critic(batch.seen, beside).squeeze(-1) - target).square())
        critic.minimise(loss.sum(), group.of("lr_critic"))
        losses.append(loss.detach())
        means.append(batch.mean(target))
    for agent in crowd.agents:
        climb(group, batch, agent, done)
    for agent in crowd.agents:
        own = group.agent(agent)
        for twin, role in TWINS.items():
            own.nets[twin].follow(own.nets[role], group.of("tau"))
    return {"critic_loss": torch.stack(losses).mean(0), "q_mean": torch.stack(means).mean(0)}


def climb(group: Group, batch: Batch, agent: str, done: Mapping[str, Tensor]) -> None:
    """One step of an agent's actor up its critic, the others doing what they did."""
    own, mine = group.agent(agent), seen_by(batch.seen, agent)
    does = own.spaces.does
    calm = torch.zeros(len(group))
    if isinstance(does, Choice):
        scores = own.nets["actor"](mine)
        calm = CALM * batch.mean(scores.square().mean(-1))
        action = drawn(does, allowed(scores, mine), _gumbel(group.crowd, batch, agent))
    else:
        action = ddpg.wanted(own, mine)
    beside = torch.cat([action if name == agent else one for name, one in done.items()], -1)
    worth = own.nets["critic"](batch.seen, beside).squeeze(-1)
    own.nets["actor"].minimise((calm - batch.mean(worth)).sum(), group.of("lr_actor"))


def entered(crowd: Crowd, actions: Tensor, agent: str) -> Tensor:
    """What an agent did as critics see it: floats in [-1, 1], or one-hot."""
    does, mine = crowd.agents[agent].does, acted_by(crowd, actions, agent)
    return hot(does, mine) if isinstance(does, Choice) else policy.unscaled(does, mine)


def chosen(group: Group, seen: Seen, agent: str) -> Tensor:
    """What an agent's target actor would do, as critics see it."""
    own, mine = group.agent(agent), seen_by(seen, agent)
    does = own.spaces.does
    if not isinstance(does, Choice):
        return ddpg.wanted(own, mine, "actor_target")
    return hot(does, policy.likeliest(does, own.nets["actor_target"](mine), mine))


def hot(does: Choice, numbers: Tensor) -> Tensor:
    """Numbers of choices (…, k) as ones among zeros (…, width)."""
    return torch.cat(
        [functional.one_hot(numbers[..., n], size).float() for n, size in enumerate(does.sizes)], -1
    )


def drawn(does: Choice, scores: Tensor, gumbel: Tensor) -> Tensor:
    """A draw as ones among zeros, whose gradient is that of the softmax it was drawn by."""
    parts = []
    for one, noise in zip(
        scores.split(list(does.sizes), -1), gumbel.split(list(does.sizes), -1), strict=True
    ):
        soft = (one + noise).softmax(-1)
        hard = functional.one_hot(soft.argmax(-1), soft.shape[-1]).float()
        parts.append(hard + (soft - soft.detach()))
    return torch.cat(parts, -1)


def _gumbel(crowd: Crowd, batch: Batch, agent: str) -> Tensor:
    """This agent's part of the batch's noise, as Gumbel numbers."""
    assert batch.noise is not None
    at = 0
    for name, own in crowd.agents.items():
        if name == agent:
            break
        at += own.does.width if isinstance(own.does, Choice) else 0
    normal = batch.noise[..., at : at + crowd.agents[agent].does.width]
    uniform = torch.special.ndtr(normal).clamp(LEAST, 1 - LEAST)
    gumbel: Tensor = -(-uniform.log()).log()
    return gumbel
