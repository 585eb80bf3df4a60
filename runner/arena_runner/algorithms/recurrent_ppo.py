"""Recurrent PPO: PPO whose encoder is an LSTM; a rollout is learned in sequences.

A sequence starts from the memory its first action was chosen with, runs forward as it was played (the memory is
cleared where an episode ended), and gradients flow back to its start. The objective is PPO's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from arena_gitops.spec.algorithms.recurrent_ppo import RecurrentPpoKnobs
from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest.network import CnnLstm, Lstm
from arena_runner.algorithms import ppo
from arena_runner.policies import actions as policy
from arena_runner.policies.design import Design
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Dice, Memory, Seen
from arena_runner.policies.spaces import Choice, Continuous

LEARNS: Literal["rollout"] = "rollout"
TWINS: Mapping[str, str] = {}
RECURRENT = True
"""the encoder is an LSTM"""
LONGEST = 16
"""steps of a sequence unless the manifest says"""


def longest(knobs: Knobs) -> int:
    """Steps of a sequence, at most."""
    assert isinstance(knobs, RecurrentPpoKnobs)
    return knobs.max_seq_len or LONGEST


def networks(body: Design, does: Choice | Continuous, knobs: Knobs) -> dict[str, Design]:
    """One network with memory and two heads."""
    assert isinstance(knobs, RecurrentPpoKnobs)
    return {"actor": ppo.two_headed(body, does, knobs)}


def remembered(group: Group, seen: Seen, memory: Memory) -> tuple[Tensor, dict[str, Tensor]]:
    """One step: latent (N, B, D), and the memory after it, (N, B, L, H) each."""
    actor = group.nets["actor"]
    encoder = actor.design.encoder
    assert isinstance(encoder, Lstm | CnnLstm)
    if memory:
        before = (memory["hidden"].transpose(1, 2), memory["cell"].transpose(1, 2))
    else:
        rows = next(iter(seen.values())).shape[1]
        blank = torch.zeros(len(group), encoder.num_layers, rows, encoder.hidden_state_size)
        before = (blank, blank)
    latent, (hidden, cell) = actor.remember(seen, before)
    return latent, {"hidden": hidden.transpose(1, 2), "cell": cell.transpose(1, 2)}


@torch.no_grad()
def value(group: Group, seen: Seen, memory: Memory) -> Tensor:
    """What follows from here is worth so much (N, B)."""
    return group.nets["actor"].head(remembered(group, seen, memory)[0], 1).squeeze(-1)


@torch.no_grad()
def greedy(group: Group, seen: Seen, memory: Memory) -> Acted:
    """The likeliest action."""
    latent, after = remembered(group, seen, memory)
    return Acted(policy.likeliest(group.spaces.does, group.nets["actor"].head(latent), seen), memory=after)


@torch.no_grad()
def explore(group: Group, seen: Seen, dice: Dice, memory: Memory) -> Acted:
    """A sampled action; the memory it was chosen with is kept beside it."""
    does, actor = group.spaces.does, group.nets["actor"]
    latent, after = remembered(group, seen, memory)
    log_std, out = actor.params.get("log_std"), actor.head(latent, 0)
    chosen = policy.sample(does, out, log_std, seen, dice)
    likely, _ = policy.log_prob(does, out, log_std, seen, chosen)
    before = memory or {name: torch.zeros_like(one) for name, one in after.items()}
    kept = {"log_prob": likely, "value": actor.head(latent, 1).squeeze(-1), **before}
    return Acted(chosen, kept, after)


def update(group: Group, batch: Batch) -> dict[str, Tensor]:
    """One step on a minibatch of sequences: everything is (N, sequences, steps, …)."""
    steps = batch.actions.shape[2]
    memory: Memory = {name: batch.kept[name][:, :, 0] for name in ("hidden", "cell")}
    latents = []
    for step in range(steps):
        latent, after = remembered(group, {name: one[:, :, step] for name, one in batch.seen.items()}, memory)
        latents.append(latent)
        goes_on = (1 - batch.kept["ended"][:, :, step])[..., None, None]
        memory = {name: one * goes_on for name, one in after.items()}
    latent = torch.stack(latents, 2).flatten(1, 2)
    actor = group.nets["actor"]
    rows = Batch(
        seen={name: one.flatten(1, 2) for name, one in batch.seen.items()},
        actions=batch.actions.flatten(1, 2),
        weight=(batch.weight / steps).repeat_interleave(steps, 1),
        kept={n: batch.kept[n].flatten(1, 2) for n in ("log_prob", "advantage", "returns")},
    )
    return ppo.improve(group, rows, actor.head(latent, 0), actor.head(latent, 1).squeeze(-1))
