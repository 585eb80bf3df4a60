"""DDPG: a deterministic actor climbs what its critic says an action is worth (Lillicrap et al., arXiv 1509.02971).

The actor and the targets move once in `policy_freq` updates of the critic, counted by the critic's own step count, so
that a copied member goes on in its parent's rhythm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from arena_gitops.spec.knobs import Knobs
from arena_runner.policies import actions as policy
from arena_runner.policies.design import Design, with_heads
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen
from arena_runner.policies.spaces import Choice, Continuous

LEARNS: Literal["replay"] = "replay"
TWINS: Mapping[str, str] = {"actor_target": "actor", "critic_target": "critic"}


def networks(body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
    """An actor, and a critic that sees the action beside what is seen."""
    width = policy.bounded(does, knobs.name).width
    return {
        "actor": with_heads(body, ("action", width)),
        "critic": with_heads(body, ("value", 1), extra=width),
    }


def wanted(group: Group, seen: Seen, role: str = "actor") -> Tensor:
    """The actor's action in [-1, 1]."""
    return torch.tanh(group.nets[role](seen))


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """The actor's action."""
    return Acted(policy.scaled(does(group), wanted(group, seen)))


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """The actor's action with noise."""
    return policy.noisy(group, wanted(group, seen), dice, memory)


def does(group: Group) -> Continuous:
    """The action space, which `networks` has checked."""
    assert isinstance(group.spaces.does, Continuous)
    return group.spaces.does


def bellman(group: Group, batch: Batch, after: Tensor) -> Tensor:
    """`r + gamma * value` (N, B); nothing after an end."""
    assert batch.reward is not None
    assert batch.over is not None
    assert batch.discount is not None
    return batch.reward + batch.discount * (1 - batch.over) * after


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step of the critic; when it is due, one of the actor, and the targets follow."""
    assert batch.after is not None
    with torch.no_grad():
        ahead = wanted(group, batch.after, "actor_target")
        after = group.nets["critic_target"](batch.after, ahead).squeeze(-1)
        target = bellman(group, batch, after)
    done = policy.unscaled(does(group), batch.actions)
    critic = group.nets["critic"]
    loss = batch.mean((critic(batch.seen, done).squeeze(-1) - target).square())
    critic.minimise(loss.sum(), group.of("lr_critic"))
    for rows in due(group):
        part = group if len(rows) == len(group) else group.subset(rows)
        climb(part, batch.of(rows))
        if part is not group:
            group.take_back(part, rows)
    return {"critic_loss": loss.detach(), "q_mean": batch.mean(target)}


def due(group: Group) -> list[list[int]]:
    """The rows whose actor moves now, if there are any."""
    every = int(group.fixed("policy_freq") or 1)
    rows = [
        row for row, step in enumerate(group.nets["critic"].steps.flatten().tolist()) if step % every == 0
    ]
    return [rows] if rows else []


def climb(group: Group, batch: Batch) -> None:
    """One step of the actor up the critic; targets follow."""
    actor = group.nets["actor"]
    worth = group.nets["critic"](batch.seen, wanted(group, batch.seen)).squeeze(-1)
    actor.minimise(-batch.mean(worth).sum(), group.of("lr_actor"))
    for twin, role in TWINS.items():
        group.nets[twin].follow(group.nets[role], group.of("tau"))
