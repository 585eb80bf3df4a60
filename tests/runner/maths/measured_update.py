"""Iterations of populations, and the memory this process took for each: run as a program, prints JSON."""

import gc
import json
import sys
from pathlib import Path

import psutil
import torch

from arena_runner.adapters import Population
from arena_runner.algorithms import grpo
from arena_runner.engines.base import Completion, Request
from arena_runner.engines.torch import TorchEngine
from arena_runner.learner import Learner
from arena_runner.models import load_base
from arena_runner.optim import StackedAdamW
from arena_runner.policy_batch import ScoredGroup


def resident():
    """Bytes of this process in memory now."""
    return psutil.Process().memory_info().rss


def forget_peak():
    """Begin the high-water mark anew (Linux)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def peak():
    """Bytes at the fullest moment since the mark was begun."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def measured(case):
    """Bytes that a base, its population, a round of sampling and one update take at most."""
    forget_peak()
    start = resident()
    base = load_base(case["model"], device="cpu", dtype=torch.float32)
    ranks = [case["rank"]] * case["members"]
    population = Population.attach(base, targets=case["targets"], ranks=ranks, alphas=[8.0] * len(ranks))
    learner = Learner(base, population, StackedAdamW(population))
    prompt = tuple(range(5, 5 + case["prompt"]))
    wanted = [(m, p) for m in range(len(ranks)) for p in range(case["prompts"])]
    engine = TorchEngine(base, population)
    engine.generate(
        [
            Request(
                member=m, prompt_ids=(p + 5, *prompt[1:]), key=k, temperature=1.0, max_new_tokens=case["new"]
            )
            for m, p in wanted
            for k in range(case["group"])
        ]
    )
    sampled = peak() - start
    completion = Completion(tuple(range(5, 5 + case["new"])), (-1.0,) * case["new"], "length")
    groups = [
        ScoredGroup(
            m, (p + 5, *prompt[1:]), (completion,) * case["group"], tuple(map(float, range(case["group"])))
        )
        for m, p in wanted
    ]
    settings = {m: grpo.GrpoSettings(lr=1e-4, beta=0.01) for m in range(len(ranks))}
    grpo.update(learner, groups, settings)
    return {"taken": peak() - start, "sampled": sampled}


def warm(case):
    """Whatever is loaded and kept at first use is no part of a measurement."""
    measured({**case, "prompts": 1, "group": 2, "prompt": 8, "new": 4})


cases = json.loads(sys.argv[1])
warm(cases[0])
sys.stdout.write(json.dumps([measured(case) for case in cases]))
