"""One GRPO update of one group, shared prefix or padded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from groups_made import group
from turns import serve

from arena_runner.adapters import Population
from arena_runner.algorithms import grpo
from arena_runner.engines.base import Completion
from arena_runner.learner import Learner
from arena_runner.models import load_base
from arena_runner.optim import StackedAdamW
from arena_runner.policy_batch import ScoredGroup


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked: `update`."""
    torch.set_num_threads(1)
    base = load_base(settings["model"], dtype=getattr(torch, settings["dtype"]))
    rank = settings["rank"]
    population = Population.attach(base, targets=settings["targets"], ranks=[rank], alphas=[2 * rank])
    optimizer = StackedAdamW(population)
    base = replace(base, packs=base.packs and not settings["padded"])
    learner = Learner(base, population, optimizer, settings["tokens_per_backward"])

    def update(*, prompt: int, tokens: int, beta: float, ragged: bool) -> None:
        prompt_ids, completions, rewards = group(
            prompt, tokens, ragged=ragged, vocabulary=base.model.config.vocab_size
        )
        scored = ScoredGroup(
            0,
            tuple(prompt_ids),
            tuple(Completion(tuple(ids), (-5.0,) * len(ids), "length") for ids in completions),
            tuple(rewards),
        )
        grpo.update(learner, [scored], {0: grpo.GrpoSettings(lr=1e-6, beta=beta)})

    return {"update": update}


if __name__ == "__main__":
    serve(build)
