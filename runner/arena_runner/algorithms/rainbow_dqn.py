"""Rainbow DQN: six improvements of DQN at once (Hessel et al., arXiv 1710.02298).

The network gives chances of `num_atoms` returns between `v_min` and `v_max` for every action (C51, arXiv 1707.06887),
through dueling heads whose layers are noisy (arXiv 1706.10295): exploring is drawing that noise anew for every row,
and what is judged or served is the means alone. Targets look `n_step` rewards ahead and let the online network
choose; rows come by priority (arXiv 1511.05952), which is the divergence that was found when they were last learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from arena_gitops.spec.algorithms.rainbow_dqn import RainbowDqnKnobs
from arena_gitops.spec.knobs import Knobs
from arena_runner.policies import layers
from arena_runner.policies.design import Design, with_heads
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen, allowed
from arena_runner.policies.spaces import Choice, Continuous, SpaceError
from arena_runner.policies.stack import Stack

LEARNS: Literal["replay"] = "replay"
TWINS: Mapping[str, str] = {"target": "q"}
PRIORITISED = True
PASSES = 3
"""draws of noise in an update: for what was seen, for who chooses and for who judges"""


def networks(body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
    """One network with noisy heads: the state's returns and the actions' advantages."""
    if not isinstance(does, Choice) or len(does.sizes) != 1:
        raise SpaceError(f"{knobs.name} chooses one of several actions: it needs a Discrete action space")
    assert isinstance(knobs, RainbowDqnKnobs)
    heads = (("value", knobs.num_atoms), ("advantage", does.width * knobs.num_atoms))
    return {"q": with_heads(body, *heads, noisy=knobs.noise_std)}


def shakes(group: Group) -> int:
    """Noise of an update."""
    return PASSES * _noise_width(group)


def chances(group: Group, stack: Stack, seen: Seen, noise: Tensor | None = None) -> Tensor:
    """Logarithm of the chance of every return after every action (N, B, A, atoms)."""
    atoms = int(group.fixed("num_atoms"))
    latent = stack.latent(seen)
    width = layers.noise_width(stack.design, 0)
    ours, theirs = (None, None) if noise is None else (noise[..., :width], noise[..., width:])
    value = stack.head(latent, 0, ours).unsqueeze(-2)
    advantage = stack.head(latent, 1, theirs).unflatten(-1, (-1, atoms))
    scores: Tensor = value + advantage - advantage.mean(-2, keepdim=True)
    return scores.log_softmax(-1)


def returns(group: Group) -> Tensor:
    """The returns whose chances are learned (atoms,)."""
    return torch.linspace(
        float(group.fixed("v_min")), float(group.fixed("v_max")), int(group.fixed("num_atoms"))
    )


def worth(group: Group, logs: Tensor) -> Tensor:
    """The mean return of every action (N, B, A)."""
    return (logs.exp() * returns(group)).sum(-1)


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """The action worth most, without noise."""
    return _best(group, seen, None)


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """The action worth most to a network with noise of its own in every environment."""
    return _best(group, seen, dice.normal(_noise_width(group)))


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step towards the projected targets, each row as its chance of being replayed demands; the target follows."""
    q = group.nets["q"]
    now, chooser, judge = (None,) * PASSES if batch.shake is None else batch.shake.chunk(PASSES, dim=-1)
    index = batch.actions.unsqueeze(-1).expand(-1, -1, 1, int(group.fixed("num_atoms")))
    logs = chances(group, q, batch.seen, now).gather(-2, index).squeeze(-2)
    wanted = [targets(group, one, chooser, judge) for one in (batch, batch.near) if one is not None]
    apart = sum(((w * (w.clamp_min(1e-12).log() - logs)).sum(-1) for w in wanted), torch.zeros(()))
    losses = batch.mean(apart * batch.kept["importance"])
    norms = q.minimise(losses.sum(), group.of("lr"))
    group.nets["target"].follow(q, group.of("tau"))
    told = apart.detach()
    return {
        "loss": losses.detach(),
        "grad_norm": norms,
        "q_mean": batch.mean((logs.detach().exp() * returns(group)).sum(-1)),
        "priority": told.clamp_min(0) + float(group.fixed("prior_eps")),
    }


@torch.no_grad()
def targets(group: Group, batch: Batch, chooser: Tensor | None, judge: Tensor | None) -> Tensor:
    """The chances of the returns that rewards and the target network promise (N, B, atoms)."""
    assert batch.after is not None
    assert batch.reward is not None
    assert batch.over is not None
    assert batch.discount is not None
    means = worth(group, chances(group, group.nets["q"], batch.after, chooser))
    chosen = allowed(means, batch.after).argmax(-1)[..., None, None]
    logs = chances(group, group.nets["target"], batch.after, judge)
    follows = logs.gather(-2, chosen.expand(-1, -1, 1, logs.shape[-1])).squeeze(-2).exp()
    reached = batch.reward.unsqueeze(-1) + (batch.discount * (1 - batch.over)).unsqueeze(-1) * returns(group)
    return projected(follows, reached, returns(group))


def projected(chance: Tensor, reached: Tensor, atoms: Tensor) -> Tensor:
    """Chances of returns `reached` (…, K), moved to the nearest of the atoms in shares of the distance."""
    count = len(atoms)
    at = (reached.clamp(atoms[0], atoms[-1]) - atoms[0]) / (atoms[1] - atoms[0])
    at = at.clamp(0, count - 1)  # the division rounds
    below = at.floor()
    share = at - below
    low = below.long()
    high = (low + 1).clamp(max=count - 1)
    found = torch.zeros_like(chance)
    found.scatter_add_(-1, low, chance * (1 - share))
    return found.scatter_add_(-1, high, chance * share)


def _noise_width(group: Group) -> int:
    design = group.nets["q"].design
    return sum(layers.noise_width(design, index) for index in range(len(design.heads)))


def _best(group: Group, seen: Seen, noise: Tensor | None) -> Acted:
    means = worth(group, chances(group, group.nets["q"], seen, noise))
    return Acted(allowed(means, seen).argmax(-1, keepdim=True))
