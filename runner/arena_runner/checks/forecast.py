"""How many groups will teach nothing: what the base model says to a few rows, scored by the reward, before a run.

A group whose completions all earn the same has no gradient. For a prompt whose samples earned value v k_v times out of
K, a group of G drawn without replacement is all v with probability C(k_v, G) / C(K, G): unbiased where K ≥ G; where
fewer were sampled, (k_v / K)^G, which is too pessimistic, and is said to be. Nothing here imports torch: a *sampler*
answers, usually `arena-runner sample` in a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from arena_gitops.errors import ArenaError
from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.sandbox import RewardError, Score, ScoreRow

PROMPTS, SAMPLES = 12, 8
"""rows asked, and the fewest answers to each; a larger group asks for as many as it has"""
MOST = 32
"""answers to each row, whatever the group"""
WORRYING = 0.75
"""share of groups without signal from which on it is a warning"""
PATIENCE_S = 900.0

Rows = Sequence[Mapping[str, str]]
ScoreAll = Callable[[list[ScoreRow]], list[Score | RewardError]]


class Sampling(Frozen):
    """What is asked of the base model; the document `arena-runner sample` reads."""

    model: ModelRef
    template: dict[str, str] | None = None
    rows: tuple[dict[str, str], ...]
    samples: int
    temperature: float = 1.0
    max_new_tokens: int = 128
    seed: int = 0


class Sampler(Protocol):
    """Answers of the base model; raises SamplerError."""

    def __call__(self, asked: Sampling) -> list[list[str]]:
        """One list of completions for each row."""
        ...


class SamplerError(ArenaError):
    """The base model could not be asked; says why."""


def in_a_process(models: Path | None = None) -> Sampler:
    """A sampler that loads the model in a process of its own, which torch is left to."""

    def ask(asked: Sampling) -> list[list[str]]:
        environment = {**os.environ, **({"ARENA_MODELS_DIR": str(models)} if models else {})}
        command = [sys.executable, "-m", "arena_runner.cli", "sample"]
        try:
            done = subprocess.run(
                command,
                input=asked.model_dump_json(),
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as problem:
            raise SamplerError(f"it took longer than {PATIENCE_S:g} s") from problem
        if done.returncode:
            raise SamplerError((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
        found: list[list[str]] = json.loads(done.stdout)
        return found

    return ask


def forecast(request: CheckRequest, rows: Rows, score: ScoreAll, sampler: Sampler) -> CheckResult | None:
    """The verdict over an experiment whose algorithm compares groups; None for any other."""
    group = _algorithm(request).get("group_size")
    asked = sampling(request, rows, int(group)) if isinstance(group, int) else None
    if asked is None:
        return None
    try:
        answers = sampler(asked)
    except SamplerError as problem:
        text = f"{asked.model.id} could not be asked for samples: {problem}"
        return CheckResult(address=request.address, name="forecast", status="warn", message=text)
    pairs = [(row, answer) for row, said in zip(asked.rows, answers, strict=True) for answer in said]
    outcomes = score([ScoreRow(row["question"], row["answer"], answer) for row, answer in pairs])
    lost = [outcome for outcome in outcomes if isinstance(outcome, RewardError)]
    if lost:
        text = f"on {len(lost)} of {len(outcomes)} samples of {asked.model.id}: {lost[0].message}"
        return CheckResult(address=request.address, name="forecast", status="fail", message=text)
    totals = [outcome.total for outcome in outcomes if isinstance(outcome, Score)]
    each = [totals[at : at + asked.samples] for at in range(0, len(totals), asked.samples)]
    return _told(request, asked, each, int(asked_group(request)))


def asked_group(request: CheckRequest) -> int:
    """The planned group size."""
    return int(_algorithm(request)["group_size"])


def sampling(request: CheckRequest, rows: Rows, group: int) -> Sampling | None:
    """What to ask; None without a model or without rows."""
    network, environment = (_section(request, name) for name in ("network", "environment"))
    model, algorithm = network.get("pretrained_model_name_or_path"), _algorithm(request)
    usable = [dict(row) for row in rows if "question" in row and "answer" in row]
    if not isinstance(model, str) or not usable:
        return None
    return Sampling(
        model=ModelRef(id=model),
        template=environment.get("prompt_template") or None,
        rows=tuple(usable[i % len(usable)] for i in range(min(PROMPTS, len(usable)))),
        samples=min(max(SAMPLES, group), MOST),
        temperature=float(algorithm.get("temperature") or 1.0),
        max_new_tokens=int(algorithm.get("max_output_tokens") or 128),
    )


def without_signal(totals: Sequence[Sequence[float]], group: int) -> float:
    """Expected share of groups whose completions all earn the same."""
    return statistics.fmean(_all_equal(Counter(one), len(one), group) for one in totals)


def _all_equal(counts: Counter[float], samples: int, group: int) -> float:
    if samples >= group:
        return sum(math.comb(k, group) for k in counts.values()) / math.comb(samples, group)
    return sum((k / samples) ** group for k in counts.values())


def _told(request: CheckRequest, asked: Sampling, each: list[list[float]], group: int) -> CheckResult:
    share = without_signal(each, group)
    every = [total for one in each for total in one]
    basis = f"{len(each)} rows x {asked.samples} samples of {asked.model.id}"
    told = f"mean {statistics.fmean(every):.3g}, standard deviation {statistics.pstdev(every):.2g}"
    rough = "" if asked.samples >= group else f"; fewer samples than group_size {group}: a rough figure"
    text = f"{share:.0%} of groups of {group} are expected to carry no signal ({basis}: {told}{rough})"
    status = "warn" if share >= WORRYING else "pass"
    if status == "warn":
        text += "; raise group_size or temperature, or let the reward pay for part of the way"
    return CheckResult.model_validate(
        {"address": request.address, "name": "forecast", "status": status, "message": text}
    )


def _algorithm(request: CheckRequest) -> dict[str, Any]:
    return _section(request, "algorithm")


def _section(request: CheckRequest, name: str) -> dict[str, Any]:
    found = request.manifest.get(name)
    return dict(found) if isinstance(found, dict) else {}
