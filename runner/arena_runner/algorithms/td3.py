"""TD3: DDPG that trusts the lesser of two critics, smooths its targets and delays its actor (arXiv 1802.09477)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from arena_gitops.spec.knobs import Knobs
from arena_runner.algorithms import ddpg
from arena_runner.policies import actions as policy
from arena_runner.policies.design import Design
from arena_runner.policies.group import Group
from arena_runner.policies.port import Batch
from arena_runner.policies.spaces import Choice, Continuous

LEARNS: Literal["replay"] = "replay"
TWINS: Mapping[str, str] = {
    "actor_target": "actor",
    "critic_target": "critic",
    "second_target": "second",
}
SMOOTHING, FARTHEST = 0.2, 0.5
"""deviation of the noise on a target's action, and where it is cut"""

greedy, explore = ddpg.greedy, ddpg.explore


def draws(does: Choice | Continuous) -> int:
    """Noise on the action of a target."""
    return does.width


def networks(body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
    """An actor and two critics."""
    made = ddpg.networks(body, does, knobs)
    return {**made, "second": made["critic"]}


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step of both critics; when it is due, one of the actor, and the targets follow."""
    target = targets(group, batch)
    done = policy.unscaled(ddpg.does(group), batch.actions)
    total = torch.zeros(len(group))
    for role in ("critic", "second"):
        critic = group.nets[role]
        loss = batch.mean((critic(batch.seen, done).squeeze(-1) - target).square())
        critic.minimise(loss.sum(), group.of("lr_critic"))
        total += loss.detach()
    for rows in ddpg.due(group):
        part = group if len(rows) == len(group) else group.subset(rows)
        climb(part, batch.of(rows))
        if part is not group:
            group.take_back(part, rows)
    return {"critic_loss": total, "q_mean": batch.mean(target)}


@torch.no_grad()
def targets(group: Group, batch: Batch) -> Tensor:
    """What the lesser critic says of a smoothed action (N, B)."""
    assert batch.after is not None
    assert batch.noise is not None
    noise = (SMOOTHING * batch.noise).clamp(-FARTHEST, FARTHEST)
    ahead = (ddpg.wanted(group, batch.after, "actor_target") + noise).clamp(-1, 1)
    told = [group.nets[role](batch.after, ahead).squeeze(-1) for role in ("critic_target", "second_target")]
    return ddpg.bellman(group, batch, torch.minimum(*told))


def climb(group: Group, batch: Batch) -> None:
    """One step of the actor up the first critic; all targets follow."""
    worth = group.nets["critic"](batch.seen, ddpg.wanted(group, batch.seen)).squeeze(-1)
    group.nets["actor"].minimise(-batch.mean(worth).sum(), group.of("lr_actor"))
    for twin, role in TWINS.items():
        group.nets[twin].follow(group.nets[role], group.of("tau"))
