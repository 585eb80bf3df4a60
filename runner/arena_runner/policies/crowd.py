"""The steps of several agents, taken apart and put side by side.

What is seen is named `agent/part`; actions lie next to each other on the last axis, as whole numbers where all agents
choose and as floats otherwise (which hold the numbers of choices exactly).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from arena_runner.policies.port import Batch, Seen
from arena_runner.policies.spaces import Choice, Crowd


def seen_by(seen: Seen, agent: str) -> Seen:
    """What one agent sees."""
    at = f"{agent}/"
    return {name.removeprefix(at): value for name, value in seen.items() if name.startswith(at)}


def joined(crowd: Crowd, actions: Sequence[Tensor]) -> Tensor:
    """Actions of all agents, (N, B, k) each, as one."""
    if len(actions) == 1:
        return actions[0]
    return torch.cat([one if crowd.whole else one.float() for one in actions], -1)


def acted_by(crowd: Crowd, actions: Tensor, agent: str) -> Tensor:
    """One agent's part of joined actions."""
    mine = actions[..., crowd.places()[agent]]
    return mine.long() if isinstance(crowd.agents[agent].does, Choice) else mine


def of_agent(crowd: Crowd, batch: Batch, agent: str) -> Batch:
    """One agent's part of what was seen, done and paid."""
    number = list(crowd.agents).index(agent)
    return replace(
        batch,
        seen=seen_by(batch.seen, agent),
        after=None if batch.after is None else seen_by(batch.after, agent),
        actions=acted_by(crowd, batch.actions, agent),
        reward=None if batch.reward is None else batch.reward[..., number],
        over=None if batch.over is None else batch.over[..., number],
    )
