"""Speed of sampling and of one GRPO update on this machine, in CPU seconds.

    python runner/bench/text.py [--model smollm2-135m-instruct] [--threads 1] [--quick]

Every update figure stands beside our own padded update of the same groups: equal gradients, no shared prefix.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see arena_runner.cli

import torch

from arena_runner.adapters import Population
from arena_runner.algorithms import grpo
from arena_runner.engines.base import Completion, Request
from arena_runner.engines.torch import TorchEngine
from arena_runner.fetch import fetch
from arena_runner.learner import Learner
from arena_runner.models import BaseModel, default_models_dir, load_base
from arena_runner.optim import StackedAdamW
from arena_runner.policy_batch import ScoredGroup
from arena_runner.seeds import row_key

MEMBERS, RANK = 4, 16
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
SAMPLING = ((16, 4, 45, 96), (8, 8, 80, 40), (8, 8, 300, 96))
"""prompts, completions of each, prompt tokens, new tokens"""
UPDATES = ((80, 48), (200, 96), (512, 32), (80, 400))
"""prompt tokens, completion tokens; groups of 8"""


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median CPU seconds after one warm-up."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return sorted(taken)[len(taken) // 2]


class Bench:
    """One model with a population; token ids are random, no text ends early."""

    def __init__(self, base: BaseModel, repeats: int) -> None:
        self.base = replace(base, eos_ids=frozenset())
        self.repeats = repeats
        self.population = Population.attach(
            base, targets=TARGETS, ranks=[RANK] * MEMBERS, alphas=[2 * RANK] * MEMBERS
        )
        self.generator = torch.Generator().manual_seed(0)

    def ids(self, length: int) -> tuple[int, ...]:
        """Random token ids."""
        vocabulary = self.base.model.config.vocab_size
        return tuple(torch.randint(3, vocabulary, (length,), generator=self.generator).tolist())

    def sample(self, prompts: int, completions: int, prompt_tokens: int, new: int) -> None:
        """Print sampled tokens per CPU second."""
        requests = [
            Request(p % MEMBERS, ids, new, row_key(0, 0, 0, p, c))
            for p, ids in enumerate(self.ids(prompt_tokens) for _ in range(prompts))
            for c in range(completions)
        ]
        engine = TorchEngine(self.base, self.population, rows_in_flight=64)
        seconds = cpu_seconds(lambda: engine.generate(requests), self.repeats)
        rate = prompts * completions * new / seconds
        print(
            f"sample  {prompts:>3} x {completions} P={prompt_tokens:<4} T={new:<4} {rate:8.0f} tokens/CPU-s"
        )

    def update(self, prompt_tokens: int, tokens: int) -> None:
        """Print CPU seconds of one update of two groups of 8, packed and padded."""
        groups = [
            ScoredGroup(0, self.ids(prompt_tokens), self._eight(tokens), tuple(map(float, range(8))))
            for _ in "ab"
        ]
        settings = {0: grpo.GrpoSettings(lr=1e-6)}
        taken = {}
        for packs in (True, False):
            base = replace(self.base, packs=packs)
            learner = Learner(base, self.population, StackedAdamW(self.population))
            taken[packs] = cpu_seconds(lambda at=learner: grpo.update(at, groups, settings), self.repeats)
        print(
            f"update  2 x 8 P={prompt_tokens:<4} T={tokens:<4} {taken[True]:8.2f} CPU-s, "
            f"padded {taken[False]:.2f} ({taken[False] / taken[True]:.2f} x)"
        )

    def _eight(self, tokens: int) -> tuple[Completion, ...]:
        return tuple(Completion(self.ids(tokens), (-5.0,) * tokens, "length") for _ in range(8))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--models-dir", type=Path, default=default_models_dir())
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the first shape of each kind only")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.model == "smollm2-135m-instruct":
        fetch(options.model, models_dir=options.models_dir)
    base = load_base(options.model, models_dir=options.models_dir)
    print(
        f"{options.model}, {base.dtype} on {base.device}, {options.threads} thread(s), {MEMBERS} members of rank {RANK}"
    )
    bench = Bench(base, options.repeats)
    for shape in SAMPLING[: 1 if options.quick else None]:
        bench.sample(*shape)
    for prompt_tokens, tokens in UPDATES[: 1 if options.quick else None]:
        bench.update(prompt_tokens, tokens)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
