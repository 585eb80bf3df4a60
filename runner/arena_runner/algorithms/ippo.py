"""IPPO: every agent learns by PPO of its own and takes the others for a part of its world (arXiv 2011.09533).

The maths is PPO's, agent by agent, on the same steps; with one agent it is PPO. What is kept of a step, rewards and
advantages have a last axis of agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from arena_gitops.spec.knobs import Knobs
from arena_runner.algorithms import ppo
from arena_runner.policies.crowd import joined, of_agent, seen_by
from arena_runner.policies.design import Design
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen
from arena_runner.policies.spaces import Crowd

LEARNS: Literal["rollout"] = "rollout"
TWINS: Mapping[str, str] = {}
MANY = True
"""it trains several agents"""
KEPT = ("log_prob", "advantage", "returns")


def networks(bodies: Mapping[str, Design], crowd: Crowd, knobs: Knobs) -> dict[str, Design]:
    """PPO's networks for every agent."""
    return {
        f"{agent}/{role}": design
        for agent, own in crowd.agents.items()
        for role, design in ppo.networks(bodies[agent], own.does, knobs).items()
    }


@torch.no_grad()
def value(group: Group, seen: Seen, memory: Memory) -> Tensor:
    """What follows from here is worth so much to each agent (N, B, agents)."""
    worth = [ppo.value(group.agent(agent), seen_by(seen, agent), {}) for agent in group.crowd.agents]
    return torch.stack(worth, -1)


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """Everyone's likeliest action."""
    done = [ppo.greedy(group.agent(agent), seen_by(seen, agent), {}) for agent in group.crowd.agents]
    return Acted(joined(group.crowd, [one.actions for one in done]))


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """Everyone's sampled action."""
    done = [ppo.explore(group.agent(agent), seen_by(seen, agent), dice, {}) for agent in group.crowd.agents]
    kept = {name: torch.stack([one.kept[name] for one in done], -1) for name in done[0].kept}
    return Acted(joined(group.crowd, [one.actions for one in done]), kept)


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step of every agent on its own part of a minibatch; figures are means over agents, `kl` the greatest."""
    told: list[dict[str, Tensor]] = []
    for number, agent in enumerate(group.crowd.agents):
        part = of_agent(group.crowd, batch, agent)
        kept = {name: batch.kept[name][..., number] for name in KEPT}
        told.append(ppo.update(group.agent(agent), replace(part, kept=kept)))
    figures = {name: torch.stack([one[name] for one in told]) for name in told[0]}
    return {name: one.amax(0) if name == "kl" else one.mean(0) for name, one in figures.items()}
