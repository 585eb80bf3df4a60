"""Sampling by our engines: a population's rows in one batch; with `engine: vllm` by vLLM in its own process."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import torch
from turns import serve

from arena_runner.adapters import Population
from arena_runner.budgets import Budgets
from arena_runner.engines.base import Request
from arena_runner.engines.chosen import open_engine
from arena_runner.learner import Learner
from arena_runner.models import load_base
from arena_runner.optim import StackedAdamW
from arena_runner.ports import Materials
from arena_runner.seeds import row_key

_OPEN = ExitStack()


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked: `sample`."""
    torch.set_num_threads(1)
    base = load_base(settings["model"], dtype=getattr(torch, settings["dtype"]))
    members, rank = settings["members"], settings["rank"]
    population = Population.attach(
        base, targets=settings["targets"], ranks=[rank] * members, alphas=[2 * rank] * members
    )
    limits = Budgets("cpu", settings["dtype"], 1, settings["rows_in_flight"], 1024, settings["engine"])
    learner = Learner(base, population, StackedAdamW(population))
    materials = Materials(Path(tempfile.mkdtemp()))
    engine = _OPEN.enter_context(
        open_engine(limits, learner, longest=settings["context"], materials=materials)
    )
    turn = 0

    def sample(*, prompts: Sequence[Sequence[int]], completions: int, tokens: int) -> dict[str, Any]:
        nonlocal turn
        turn += 1
        requests = [
            Request(p % members, tuple(ids), tokens, row_key(0, p % members, turn, p, c))
            for p, ids in enumerate(prompts)
            for c in range(completions)
        ]
        began = _cpu_of_all()
        done = engine.generate(requests)
        return {"tokens": sum(len(each.token_ids) for each in done), "cpu_s": _cpu_of_all() - began}

    return {"sample": sample}


def _cpu_of_all() -> float:
    """CPU seconds of this process and those it started."""
    own = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in [own, *own.children(recursive=True)])


if __name__ == "__main__":
    serve(build)
