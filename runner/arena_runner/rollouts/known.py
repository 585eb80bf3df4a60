"""What the tasks share whose answers are known beforehand: the next rows of each member, and a probe."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from arena_runner import ops
from arena_runner.learner import Learner
from arena_runner.packing import Group, pack
from arena_runner.population.member import Member
from arena_runner.rollouts.prompts import Prompt
from arena_runner.rollouts.stream import Stream
from arena_runner.rollouts.task import Probe


def next_rows(members: Sequence[Member], prompts: Sequence[Prompt], seed: int) -> dict[int, list[Prompt]]:
    """Each place's own next `batch_size` prompts of the stream."""
    stream = Stream(len(prompts), seed)
    return {
        member.index: [
            prompts[row] for row in stream.take(member.cursor, int(member.hyperparameters["batch_size"]))
        ]
        for member in members
    }


@torch.no_grad()
def probe(learner: Learner, place: int, prompt: Prompt) -> Probe:
    """A row's answer (DPO: the chosen one), and the probability a place gives each of its tokens."""
    base, population = learner.base, learner.population
    group = Group(place, prompt.ids, (prompt.target,), (0,))
    (piece,) = pack([group], max(group.tokens, 1), base.device)
    logprobs = ops.logprobs(base, population, piece, torch.ones(len(piece.rows), device=base.device))
    return Probe(prompt.ids, prompt.target, tuple(logprobs.tolist()))
