"""DQN: learn what an action is worth from replayed transitions (Mnih et al., Nature 2015).

`double` lets the online network choose and the target network judge (van Hasselt et al., arXiv 1509.06461), `dueling`
splits the head into the state's value and the actions' advantages (Wang et al., arXiv 1511.06581). The target follows
softly after every update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from arena_gitops.spec.algorithms.dqn import DqnKnobs
from arena_gitops.spec.knobs import Knobs
from arena_runner.policies.design import Design, with_heads
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen, allowed
from arena_runner.policies.spaces import Choice, Continuous, SpaceError
from arena_runner.policies.stack import Stack

LEARNS: Literal["replay"] = "replay"
TWINS: Mapping[str, str] = {"target": "q"}


def networks(body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
    """One network: a value per action, or the state's value and the actions' advantages."""
    if not isinstance(does, Choice) or len(does.sizes) != 1:
        raise SpaceError(f"{knobs.name} chooses one of several actions: it needs a Discrete action space")
    assert isinstance(knobs, DqnKnobs)
    heads = (("value", 1), ("advantage", does.width)) if knobs.dueling else (("q", does.width),)
    return {"q": with_heads(body, *heads)}


def worth(stack: Stack, seen: Seen) -> Tensor:
    """The value of every action (N, B, A)."""
    latent = stack.latent(seen)
    if len(stack.design.heads) == 1:
        return stack.head(latent)
    value, advantage = stack.head(latent, 0), stack.head(latent, 1)
    return value + advantage - advantage.mean(-1, keepdim=True)


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """The action worth most."""
    return Acted(allowed(worth(group.nets["q"], seen), seen).argmax(-1, keepdim=True))


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """Greedy, or with a probability that decays over the run any allowed action."""
    scores = worth(group.nets["q"], seen)
    drawn = dice.uniform(1 + scores.shape[-1])
    best, other = allowed(scores, seen).argmax(-1), allowed(drawn[..., 1:], seen).argmax(-1)
    return Acted(torch.where(drawn[..., 0] < epsilon(group, dice.explored), other, best).unsqueeze(-1))


def epsilon(group: Group, explored: int) -> float:
    """The share of random actions after so many vector steps: a function of counters, so a resume needs no state."""
    chances = group.training
    return max(chances.eps_end, chances.eps_start * chances.eps_decay**explored)


def targets(group: Group, batch: Batch) -> Tensor:
    """`r + gamma * value of what came after` (N, B); nothing after an end."""
    assert batch.after is not None
    assert batch.reward is not None
    assert batch.over is not None
    assert batch.discount is not None
    after = worth(group.nets["target"], batch.after)
    if group.fixed("double"):
        chosen = allowed(worth(group.nets["q"], batch.after), batch.after).argmax(-1, keepdim=True)
        value = after.gather(-1, chosen).squeeze(-1)
    else:
        value = allowed(after, batch.after).amax(-1)
    return batch.reward + batch.discount * (1 - batch.over) * value


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step on the squared error, then the target follows."""
    q = group.nets["q"]
    with torch.no_grad():
        wanted = targets(group, batch)
    chosen = worth(q, batch.seen).gather(-1, batch.actions).squeeze(-1)
    loss = batch.mean((chosen - wanted).square())
    norms = q.minimise(loss.sum(), group.of("lr"))
    group.nets["target"].follow(q, group.of("tau"))
    return {"loss": loss.detach(), "grad_norm": norms, "q_mean": batch.mean(chosen.detach())}
