"""CPU seconds until the best member reaches a reward from a hostile range of learning rates: `python runner/bench/search.py`.

Each seed draws one decade of learning rates that may hold no good one. All methods start inside it: our population with
and without evolution, AgileRL's, and over trl random search and ASHA (optuna's successive halving). Populations may
mutate the rate beyond the decade, by 3 or 1/3, in the same wide range; a search cannot leave what it was given. A seed
that gets there too late or never counts as the whole budget. A tiny random model, vowels as the reward, greedy evaluation.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import against_agilerl
import against_trl
from models_made import TINY, made, sums
from turns import Contender

SHAPE = {**TINY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
MEMBERS = 4
EVERY = 5
"""iterations between evaluations, and between evolutions"""
TRIAL = 8
"""evaluations of one trial of a search"""
TARGET = 0.8
GOOD = 3e-3
"""from about here on this task is learned in 20 iterations"""
WIDE = (1e-5, 1e-1)


class Clock:
    """Counts a contender's CPU seconds, and ends when they are spent."""

    def __init__(self, contender: Contender, budget: float) -> None:
        self.contender = contender
        self.budget = budget
        self.spent = 0.0

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """One turn on the clock."""
        answer = self.contender.ask(action, **arguments)
        self.spent += answer["cpu_s"]
        return answer

    def round(self) -> float:
        """`EVERY` iterations and an evaluation: the best fitness."""
        for _ in range(EVERY):
            self.ask("iterate")
        return max(self.ask("evaluate", rows=8)["fitness"])

    @property
    def over(self) -> bool:
        """Whether the budget is spent."""
        return self.spent >= self.budget


def population(clock: Clock, *, evolving: bool) -> bool:
    """Train until the target; whether it was reached."""
    while not clock.over:
        if clock.round() >= TARGET:
            return True
        if evolving:
            clock.ask("evolve")
    return False


def random_search(clock: Clock, rates: Iterator[float]) -> bool:
    """One trial after another, each to its end."""
    while not clock.over:
        clock.ask("begin", lr=next(rates))
        for _ in range(TRIAL):
            if clock.round() >= TARGET:
                return True
            if clock.over:
                break
    return False


def asha(clock: Clock, span: tuple[float, float], seed: int) -> bool:
    """The same trials, ended early by asynchronous successive halving."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=seed),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    )
    while not clock.over:
        trial = study.ask()
        clock.ask("begin", lr=trial.suggest_float("lr", *span, log=True))
        best = 0.0
        for step in range(1, TRIAL + 1):
            best = clock.round()
            if best >= TARGET:
                return True
            trial.report(best, step)
            if clock.over or trial.should_prune():
                break
        study.tell(trial, best)
    return False


def rates(span: tuple[float, float], seed: int) -> Iterator[float]:
    """Learning rates of a decade, evenly in their logarithm."""
    dice = random.Random(f"rates {seed}")  # noqa: S311 - not a secret
    while True:
        yield span[0] * 10 ** dice.random()


def span_of(seed: int) -> tuple[float, float]:
    """The seed's decade, somewhere in the wide range."""
    low = 10 ** random.Random(f"span {seed}").uniform(-5.0, -2.0)  # noqa: S311 - not a secret
    return low, 10 * low


def one_seed(seed: int, model: str, budget: float, agilerl: str | None, trl: str) -> dict[str, float]:
    """CPU seconds of every method."""
    span, rows = span_of(seed), sums(32)
    first = rates(span, seed)
    common = {
        "model": model,
        "dtype": "float32",
        "rank": 8,
        "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "prompts": 2,
        "completions": 8,
        "tokens": 12,
        "context": 96,
        "all_tokens": False,
        "beta": 0.0,
        "reward": "vowels",
        "rows": {"train": rows[:24], "eval": rows[24:]},
        "seed": seed,
    }
    members = common | {
        "members": MEMBERS,
        "lrs": [next(first) for _ in range(MEMBERS)],
        "lr_span": WIDE,
        "lr_step": 3.0,
    }
    ours, trials = ("our_population.py", sys.executable), ("trl_trials.py", trl)
    methods: dict[str, tuple[tuple[str, str], dict[str, Any], Callable[[Clock], bool]]] = {
        "ours": (ours, members, lambda clock: population(clock, evolving=True)),
        "ours, evolution off": (ours, members, lambda clock: population(clock, evolving=False)),
        "random search, trl": (trials, common, lambda clock: random_search(clock, rates(span, seed))),
    }
    if importlib.util.find_spec("optuna"):
        methods["ASHA, trl"] = (trials, common, lambda clock: asha(clock, span, seed))
    if agilerl:
        theirs = ("agilerl_population.py", agilerl)
        methods["agilerl"] = (theirs, members, lambda clock: population(clock, evolving=True))
    taken = {}
    for name, ((script, python), told, work) in methods.items():
        with ExitStack() as stack:
            clock = Clock(stack.enter_context(Contender(name, python, script, told)), budget)
            taken[name] = min(clock.spent, budget) if work(clock) else budget
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    """A table, a row a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=float, default=30.0, help="CPU seconds of each method and seed")
    parser.add_argument("--agilerl", default=against_agilerl.PYTHON)
    parser.add_argument("--trl", default=against_trl.PYTHON)
    options = parser.parse_args(arguments)
    agilerl = options.agilerl if os.access(options.agilerl, os.X_OK) else None
    results: list[dict[str, float]] = []
    with made(SHAPE) as model:
        for seed in range(options.seeds):
            results.append(one_seed(seed, model, options.budget, agilerl, options.trl))
            if seed == 0:
                print(
                    f"| seed, decade of rates | {' | '.join(results[0])} |\n|---{'|---' * len(results[0])}|"
                )
            span = span_of(seed)
            note = "" if span[1] >= GOOD else " (none good)"
            figures = " | ".join(f"{value:.1f}" for value in results[-1].values())
            print(f"| {seed}, {span[0]:.0e} to {span[1]:.0e}{note} | {figures} |", flush=True)
    for what, of in (("median", median), ("mean", mean)):
        figures = [of([result[name] for result in results]) for name in results[0]]
        print(f"| {what} | {' | '.join(f'{value:.1f}' for value in figures)} |")
        print(f"| {what} over ours | {' | '.join(f'{value / figures[0]:.2f} x' for value in figures)} |")


if __name__ == "__main__":
    main()
