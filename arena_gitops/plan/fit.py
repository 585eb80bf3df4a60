"""Whether a run fits into the memory of its place, with the numbers: from the closed form of `spec.memory`.

What is not known before the rows are read (how long prompts and completions are, which precision a CPU computes in)
makes the need a range. `no_fit` is said only when even the least need, less the tolerance, is too much; `tight` when
the greatest need, with the tolerance, might be. An unknown is never `ok`.
"""

from __future__ import annotations

from collections.abc import Mapping

from arena_gitops.plan.classify import spec_at
from arena_gitops.plan.cost import tier_of
from arena_gitops.plan.estimate import profile_of
from arena_gitops.plan.model import Fit, Verdict
from arena_gitops.plan.shapes import shape_of
from arena_gitops.spec.memory import (
    BF16,
    FP32,
    GIB,
    LEAST_TOKENS_PER_BACKWARD,
    RUNTIME_GIB,
    TOLERANCE,
    Load,
    ModelFacts,
    Need,
    load_of,
    need,
)
from arena_gitops.spec.wire import Tier
from arena_gitops.state import DesiredResource, ObservedState

WAVE = 16
"""Episodes of evaluation that a member plays side by side."""
SMALLEST_GIB = 2**-14
"""What is counted for an environment at least: less is not seen from outside."""
SHORTEST = 32
"""Tokens of a prompt, and of a completion, for the least need."""
GPU_GIB: Mapping[str, float] = {
    "t4": 15.0,
    "l4": 22.5,
    "a10": 22.5,
    "a10g": 22.5,
    "l40s": 44.5,
    "a100-40gb": 39.5,
    "a100-80gb": 79.0,
    "h100": 79.0,
    "h200": 139.0,
    "b200": 178.0,
}
"""Usable memory of one GPU by its common name."""


def fit_of(resource: DesiredResource, observed: ObservedState) -> Fit | None:
    """The verdict on one experiment; None where the question makes no sense."""
    tier = tier_of(resource, observed.tiers)
    name = spec_at(resource.spec, "model.id")
    load = load_of(resource.spec["manifest"], chained=spec_at(resource.spec, "inputs.base") is not None)
    if tier is None or name is None or load is None:
        return None if tier is None or name is not None else _environments(resource, observed, tier)
    facts = shape_of(str(name), observed.models)
    have = memory_of(tier)
    if facts is None:
        return Fit(verdict="unknown", have_gib=have, basis=f"the shape of {name} is not known")
    if have is None:
        return Fit(verdict="unknown", basis=f"the memory of {tier.gpu_type} is not known")
    return _judged(facts, load, tier, have)


def _environments(resource: DesiredResource, observed: ObservedState, tier: Tier) -> Fit | None:
    """What all members' environments take beside the worker; networks and replay of policies are small."""
    given = spec_at(resource.spec, "inputs.environment")
    if not isinstance(given, Mapping) or not given.get("files"):
        return None
    profile, have = profile_of(resource.spec, observed.profiles), memory_of(tier)
    if profile is None or have is None:
        basis = f"{given.get('address')} has not been measured here; arena check --run does"
        return Fit(verdict="unknown", have_gib=have, basis=basis)
    training, environment = (resource.spec["manifest"][name] for name in ("training", "environment"))
    members, each = int(training["pop_size"]), max(profile.memory_per_env_gb, SMALLEST_GIB)
    learning = members * int(environment["num_envs"])
    judging = members * min(WAVE, int(training["eval_episodes"]) * int(training["eval_loop"]))
    runtime = RUNTIME_GIB["cpu"]
    low, high = (count * each + runtime for count in (learning, learning + judging))
    verdict: Verdict = "no_fit" if low * (1 - TOLERANCE) > have else "ok"
    if verdict == "ok" and high * (1 + TOLERANCE) > have:
        verdict = "tight"
    return Fit(
        verdict=verdict,
        least_gib=round(low, 2),
        most_gib=round(high, 2),
        have_gib=have,
        parts={"environments": round(high - runtime, 2), "runtime": runtime},
        basis=(
            f"{learning + judging} environments of {each * 1024:,.3g} MiB each by their profile, "
            f"{max(0, int((have - runtime) / each)):,} would fit"
        ),
    )


def memory_of(tier: Tier) -> float | None:
    """What one job has to itself, in GiB."""
    if not tier.num_gpus:
        return tier.job_gb or round(tier.ram_gb / (tier.slots or 1), 2)
    if tier.gpu_memory_gb is not None:
        return tier.gpu_memory_gb
    plain = (tier.gpu_type or "").lower().replace("nvidia", "").strip(" -_").replace(" ", "-")
    return GPU_GIB.get(plain)


def _judged(facts: ModelFacts, load: Load, tier: Tier, have: float) -> Fit:
    device = "cuda" if tier.num_gpus else "cpu"
    longest = max(load.context - load.new_tokens, SHORTEST)
    least = need(
        facts,
        load,
        device=device,
        dtype=BF16,
        prompt_tokens=min(SHORTEST, longest),
        own_tokens=min(SHORTEST, load.new_tokens),
        tokens_per_backward=LEAST_TOKENS_PER_BACKWARD[device],
    )
    most = need(facts, load, device=device, dtype=BF16 if tier.num_gpus else FP32, prompt_tokens=longest)
    low, high = (one.peak / GIB + RUNTIME_GIB[device] for one in (least, most))
    verdict: Verdict = "ok"
    if low * (1 - TOLERANCE) > have:
        verdict = "no_fit"
    elif high * (1 + TOLERANCE) > have:
        verdict = "tight"
    precision = "bf16" if tier.num_gpus else "bf16 to fp32"
    return Fit(
        verdict=verdict,
        least_gib=round(low, 2),
        most_gib=round(high, 2),
        have_gib=have,
        parts=_parts(most, RUNTIME_GIB[device]),
        basis=f"closed form for {facts.id} in {precision}, within {TOLERANCE:.0%}",
    )


def _parts(found: Need, runtime: float) -> dict[str, float]:
    named = {
        "weights": found.weights,
        "adapters": found.adapters,
        "moments": found.moments,
        "training": found.training,
        "sampling": found.sampling,
    }
    return {name: round(size / GIB, 2) for name, size in named.items()} | {"runtime": runtime}
