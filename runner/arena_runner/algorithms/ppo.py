"""PPO: improve the policy on its own rollouts, as far as a clip allows (Schulman et al., arXiv 1707.06347).

Advantages are generalised (arXiv 1506.02438) and normalised per minibatch; the value's error is a plain square. The
update is stable-baselines3's, to which a test compares its gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from arena_gitops.spec.classic_knobs import OnPolicyKnobs
from arena_gitops.spec.knobs import Knobs
from arena_runner.policies import actions as policy
from arena_runner.policies.design import Design, with_heads
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen
from arena_runner.policies.spaces import Choice, Continuous

LEARNS: Literal["rollout"] = "rollout"
TWINS: Mapping[str, str] = {}
EPS = 1e-5
"""Adam's, as in every PPO that works"""
VALUE_GAIN = {"output_vanish": False}


def networks(body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
    """One network with two heads, or an encoder for each."""
    assert isinstance(knobs, OnPolicyKnobs)
    together = two_headed(body, does, knobs)
    if knobs.share_encoders:
        return {"actor": together}
    actor, critic = together.heads
    alone = together.model_copy(update={"heads": (critic,), "log_std": 0})
    return {"actor": together.model_copy(update={"heads": (actor,)}), "critic": alone}


def two_headed(body: Design, does: Choice | Continuous, knobs: OnPolicyKnobs) -> Design:
    """One encoder with a head for the action and one for the value."""
    free = does.width if isinstance(does, Continuous) else 0
    body = body.model_copy(update={"log_std": free, "log_std_init": knobs.action_std_init})
    actor = with_heads(body, ("action", does.width)).heads[0]
    critic = with_heads(body, ("value", 1)).heads[0]
    critic = critic.model_copy(update={"hidden": critic.hidden.model_copy(update=VALUE_GAIN)})
    return body.model_copy(update={"heads": (actor, critic)})


def both(group: Group, seen: Seen) -> tuple[Tensor, Tensor]:
    """The actor's numbers (N, B, width) and the value (N, B)."""
    actor = group.nets["actor"]
    latent = actor.latent(seen)
    if (critic := group.nets.get("critic")) is None:
        return actor.head(latent, 0), actor.head(latent, 1).squeeze(-1)
    return actor.head(latent), critic(seen).squeeze(-1)


@torch.no_grad()
def value(group: Group, seen: Seen, memory: Memory) -> Tensor:
    """What follows from here is worth so much (N, B)."""
    return both(group, seen)[1]


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """The likeliest action."""
    actor = group.nets["actor"]
    return Acted(policy.likeliest(group.spaces.does, actor.head(actor.latent(seen)), seen))


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """A sampled action, its log-probability, and the value of where it was taken."""
    does, log_std = group.spaces.does, group.nets["actor"].params.get("log_std")
    out, worth = both(group, seen)
    chosen = policy.sample(does, out, log_std, seen, dice)
    likely, _ = policy.log_prob(does, out, log_std, seen, chosen)
    return Acted(chosen, {"log_prob": likely, "value": worth})


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step on a minibatch."""
    out, worth = both(group, batch.seen)
    return improve(group, batch, out, worth)


def improve(group: Group, batch: Batch, out: Tensor, worth: Tensor) -> dict[str, Tensor]:
    """The clipped objective, whatever the networks were that gave `out` and `worth`."""
    actor = group.nets["actor"]
    likely, entropy = policy.log_prob(
        group.spaces.does, out, actor.params.get("log_std"), batch.seen, batch.actions
    )
    gain = normalised(batch, batch.kept["advantage"])
    change = likely - batch.kept["log_prob"]
    ratio, clip = change.exp(), group.of("clip_coef").unsqueeze(1)
    clipped = ratio.clamp(1 - clip, 1 + clip)
    policy_loss = -batch.mean(torch.minimum(ratio * gain, clipped * gain))
    value_loss = batch.mean((batch.kept["returns"] - worth).square())
    spread = batch.mean(entropy)
    loss = policy_loss - group.of("ent_coef") * spread + group.of("vf_coef") * value_loss
    figures = {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": spread,
        "kl": batch.mean(ratio - 1 - change),
        "clip_fraction": batch.mean(((ratio - 1).abs() > clip).float()),
    }
    _step(group, loss.sum())
    return {name: figure.detach() for name, figure in figures.items()}


def normalised(batch: Batch, gain: Tensor) -> Tensor:
    """Advantages with mean 0 and deviation 1 over each member's own rows."""
    count = (batch.weight > 0).sum(-1, keepdim=True)
    centred = gain - batch.mean(gain).unsqueeze(1)
    variance = batch.mean(centred.square()).unsqueeze(1) * count / (count - 1).clamp(min=1)
    return torch.where(count > 1, centred / (variance.sqrt() + 1e-8), gain)


def _step(group: Group, loss: Tensor) -> None:
    """Adam on all networks; a member's gradients are clipped by their norm over all of its networks."""
    stacks = list(group.nets.values())
    for number, stack in enumerate(stacks):
        stack.differentiate(loss, retain=number < len(stacks) - 1)
    norm = torch.stack([stack.norms() for stack in stacks]).square().sum(0).sqrt()
    shrink = (group.of("max_grad_norm") / (norm + 1e-6)).clamp(max=1.0)
    for stack in stacks:
        stack.apply(group.of("lr"), shrink=shrink, eps=EPS)
