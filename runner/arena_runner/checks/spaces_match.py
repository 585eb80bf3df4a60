"""Can the algorithm act in this environment? By what the environment says of its spaces, before a run finds out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from arena_gitops.spec.algorithms import ALGORITHMS, knobs_for
from arena_gitops.spec.classic_knobs import ClassicKnobs
from arena_gitops.spec.wire import CheckRequest, CheckResult

SEEN = {"Box", "Discrete", "MultiDiscrete", "MultiBinary"}
DONE = {
    "choice": ({"Discrete"}, "one choice of several (Discrete)"),
    "bounded": ({"Box"}, "floats between finite bounds (Box)"),
    "either": (SEEN, "choices, or floats between finite bounds"),
    "any": (SEEN, "Box, Discrete, MultiDiscrete or MultiBinary"),
}


def check_spaces(request: CheckRequest, values: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Compare the algorithm with what the environment told of itself; nothing where it told nothing."""
    section = request.manifest.get("algorithm")
    name = str(section.get("name")) if isinstance(section, dict) else ""
    knobs, kinds = knobs_for(name), values.get("kinds")
    environment = request.inputs.environment
    if environment is None or knobs is None or not issubclass(knobs, ClassicKnobs) or not kinds:
        return
    several = "sees" not in kinds
    if several != knobs.SEVERAL:
        trains, has = ("several agents", "one") if knobs.SEVERAL else ("one agent", "several")
        problem = f"{name} trains {trains}, and {environment.address or environment.gym_id} has {has}"
    else:
        casts = kinds.items() if several else [("", kinds)]
        problem = next(filter(None, (_of_agent(name, knobs, agent, one) for agent, one in casts)), "")
    said = problem or f"{name} can see {values['observation_space']} and do {values['action_space']}"
    yield CheckResult(
        address=request.address, name="spaces", status="fail" if problem else "pass", message=said
    )


def _of_agent(name: str, knobs: type[ClassicKnobs], agent: str, kinds: Mapping[str, Any]) -> str:
    problem = _seen(kinds["sees"]) or _done(name, knobs, kinds["does"])
    return f"{agent}: {problem}" if agent and problem else problem


def _seen(kind: Mapping[str, Any]) -> str:
    inner = kind.get("parts")
    if inner is not None:
        return next(filter(None, (_seen(one) for one in inner)), "")
    if kind["kind"] in SEEN:
        return ""
    return f"observations of {kind['kind']} have no room: use Box, Discrete, Dict or Tuple of them"


def _done(name: str, knobs: type[ClassicKnobs], kind: Mapping[str, Any]) -> str:
    kinds, words = DONE[knobs.ACTS]
    if kind["kind"] not in kinds:
        others = ", ".join(sorted(filter(lambda one: _fits(one, kind, knobs), ALGORITHMS)))
        return f"{name} needs actions that are {words}, this environment's are {kind['kind']}; for it there are: {others}"
    if knobs.ACTS in {"bounded", "either"} and not kind["bounded"]:
        return f"{name} needs finite bounds for every value of an action; give the Box a low and a high"
    return ""


def _fits(name: str, kind: Mapping[str, Any], like: type[ClassicKnobs]) -> bool:
    knobs = knobs_for(name)
    if knobs is None or not issubclass(knobs, ClassicKnobs) or knobs.SEVERAL != like.SEVERAL:
        return False
    return kind["kind"] in DONE[knobs.ACTS][0]
