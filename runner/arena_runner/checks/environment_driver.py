"""Runs inside the sandbox, beside the user's environment: imports it, checks it, steps it, measures it.

Standard library, plus gymnasium and PettingZoo where the interpreter has them. Each call gets the name of a stage
and JSON, and gives JSON back; what goes wrong in the user's code is an answer with the deepest line of their own
files. This file is copied into the box; the runner itself never imports it.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the cost of importing typing
if TYPE_CHECKING:
    from arena_runner.checks.agents_code import NotChecked, api_of_agents, parallel_step
    from arena_runner.checks.box_code import (
        Json,
        WrongError,
        clean,
        fault,
        maker,
        paid,
        place_of,
        time_limit,
    )
else:
    from agents_code import NotChecked, api_of_agents, parallel_step
    from box_code import Json, WrongError, clean, fault, maker, paid, place_of, time_limit

WINDOW_S = 0.1
RESETS = 200
LEAKED_BYTES = 16 << 10
"""of memory for each reset, beyond which it is a leak"""
LARGE_REWARD = 1e4
state: Json = {}


def run(stage: str, text: str, _unused: str) -> Json:
    """One stage; `{"ok": …}` with warnings and values, or the error and where it is."""
    options = json.loads(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with time_limit(options.get("limit_s", 60.0)):
                said = STAGES[stage](options)
        except NotChecked as why:
            return {"ok": True, "warnings": [str(why)], "values": {}}
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its answer
            return {"ok": False, **placed(fault(error))}
    texts = [clean(str(one.message)) for one in caught if not issubclass(one.category, DeprecationWarning)]
    return {"ok": True, "warnings": list(dict.fromkeys(texts))[:10], "values": said}


def placed(found: Json) -> Json:
    """A library's complaint has no line of the user's: then the method is named that it is about."""
    if found["file"] or "environment" not in state:
        return found
    about = next((name for name in ("reset", "step") if f"{name}()" in found["error"]), None)
    environment = getattr(state["environment"], "unwrapped", state["environment"])
    file, line = place_of(getattr(environment, about) if about else type(environment))
    return {**found, "file": file, "line": line}


def load(options: Json) -> Json:
    """Import the module and find the class."""
    state["make"] = maker(options["entrypoint"], options["config"])
    return {}


def construct(options: Json) -> Json:
    """Make one, and say what it sees and does."""
    environment = state["environment"] = state["make"]()
    if options["multi_agent"]:
        agents = list(getattr(environment, "possible_agents", ()))
        if not agents:
            raise WrongError(
                "it has no possible_agents, which every PettingZoo environment has", type(environment)
            )
        spaces = {a: (environment.observation_space(a), environment.action_space(a)) for a in agents}
        sees, does = ({a: str(pair[n]) for a, pair in spaces.items()} for n in (0, 1))
        kinds = {str(a): {"sees": kind_of(pair[0]), "does": kind_of(pair[1])} for a, pair in spaces.items()}
        told = {"observation_space": clean(str(sees)), "action_space": clean(str(does))}
        return {**told, "agents": agents, "kinds": kinds}
    missing = [n for n in ("observation_space", "action_space") if getattr(environment, n, None) is None]
    if missing:
        raise WrongError(f"it has no {' and no '.join(missing)}; set them in __init__", type(environment))
    return {
        "observation_space": clean(str(environment.observation_space)),
        "action_space": clean(str(environment.action_space)),
        "kinds": {"sees": kind_of(environment.observation_space), "does": kind_of(environment.action_space)},
    }


def kind_of(space: Any) -> Json:
    """What an algorithm must know of a space before it is chosen for it."""
    kind = type(space).__name__
    if kind in {"Dict", "Tuple"}:
        inner = space.spaces.values() if kind == "Dict" else space.spaces
        return {"kind": kind, "parts": [kind_of(one) for one in inner]}
    bounded = kind != "Box" or bool((abs(space.low) < math.inf).all() and (abs(space.high) < math.inf).all())
    return {"kind": kind, "bounded": bounded}


def api(options: Json) -> Json:
    """What the library itself demands."""
    if options["multi_agent"]:
        return api_of_agents(state.get("make"))
    try:
        from gymnasium.utils.env_checker import check_env
    except ImportError as missing:
        raise NotChecked(
            f"gymnasium is not installed here ({missing.name}): its check_env was not run"
        ) from None
    check_env(state["make"](), skip_render_check=True)
    return {}


def steps(options: Json) -> Json:
    """Random steps, with a look at everything that comes back."""
    rewards = list(itertools.islice(random_rewards(state["environment"], options), options["steps"]))
    mean = sum(rewards) / len(rewards)
    low, high = state["paid"]
    return {"steps": len(rewards), "mean_reward": mean, "least_reward": low, "greatest_reward": high}


def idle(options: Json) -> Json:
    """The same action again and again: nothing, where there is such an action."""
    walk = random_rewards(state["environment"], options, nothing)
    for _ in itertools.islice(walk, options["steps"]):
        pass
    return {}


def rewards(_options: Json) -> Json:
    """Every reward that was paid so far, beside what the environment says of them."""
    environment = state["environment"]
    low, high = state["paid"]
    declared = getattr(environment, "reward_range", None)
    seen = {"least_reward": low, "greatest_reward": high, "reward_range": clean(str(declared or ""))}
    if declared is not None:
        try:
            least, most = map(float, declared)
        except (TypeError, ValueError):
            text = f"its reward_range is {clean(repr(declared))}; write the least and the greatest reward of a step"
            raise WrongError(text, type(environment)) from None
        if not (least <= low and high <= most):
            text = (
                f"rewards were between {low:g} and {high:g}, which leaves its reward_range of {least:g} to {most:g}: "
                f"clip or scale them in step, or declare reward_range = ({min(low, least):g}, {max(high, most):g})"
            )
            raise WrongError(text, environment.step)
    if max(-low, high) > LARGE_REWARD:
        largest = max(-low, high, key=abs)
        warnings.warn(
            f"rewards reach {largest:g}: value functions learn badly from such; scale them", stacklevel=1
        )
    return seen


def drawn(space: Any, mask: Any) -> Any:
    """A random action, of those that are allowed."""
    masked = hasattr(mask, "astype") and type(space).__name__ == "Discrete"
    return space.sample(mask.astype("int8")) if masked else space.sample()


def nothing(space: Any, mask: Any) -> Any:
    """The action that comes nearest to doing nothing."""
    kind = type(space).__name__
    if kind == "Discrete":
        return space.start if mask is None or mask[0] else drawn(space, mask)
    if kind == "Box":
        return (space.sample() * 0).clip(space.low, space.high).astype(space.dtype)
    return space.sample() * 0 if kind in {"MultiDiscrete", "MultiBinary"} else space.sample()


def random_rewards(environment: Any, options: Json, choose: Any = drawn) -> Iterator[float]:
    """What random actions are paid, for ever; an episode that ends is followed by another."""
    act = parallel_step if options["multi_agent"] else single_step
    for seed in itertools.count():
        state["seen"] = begin(environment, seed)
        over = False
        while not over:
            each, over = act(environment, choose)
            low, high = state.get("paid", (math.inf, -math.inf))
            state["paid"] = (min(low, *each), max(high, *each)) if each else (low, high)
            yield sum(each)


def begin(environment: Any, seed: int) -> Any:
    """Reset, and seed the spaces so that two walks are the same."""
    answer = environment.reset(seed=seed)
    for space in action_spaces(environment):
        if hasattr(space, "seed"):
            space.seed(seed)
    if isinstance(answer, tuple) and len(answer) == 2 and not hasattr(environment, "possible_agents"):
        contained(environment, answer[0], environment.reset)
    return answer


def action_spaces(environment: Any) -> list[Any]:
    """Of everyone who acts."""
    if hasattr(environment, "possible_agents"):
        return [environment.action_space(agent) for agent in environment.possible_agents]
    return [getattr(environment, "action_space", None)]


def single_step(environment: Any, choose: Any) -> tuple[list[float], bool]:
    """One action of one agent, of those that its last answer allowed."""
    before = state["seen"]
    info = before[1] if isinstance(before, tuple) and len(before) == 2 else {}
    mask = info.get("action_mask") if isinstance(info, dict) else None
    answer = environment.step(choose(environment.action_space, mask))
    if not isinstance(answer, tuple) or len(answer) != 5:
        text = f"step gives (observation, reward, terminated, truncated, info), not {clean(repr(answer))}"
        raise WrongError(text, environment.step)
    observation, reward, terminated, truncated, info = answer
    state["seen"] = observation, info
    contained(environment, observation, environment.step)
    return [paid(reward, environment.step)], bool(terminated or truncated)


def contained(environment: Any, observation: Any, culprit: Any) -> None:
    """Refuse an observation that is not in its space; what is no number is named as such."""
    space = environment.observation_space
    if not hasattr(space, "contains") or space.contains(observation):
        return
    why = ""
    if hasattr(observation, "shape") and hasattr(space, "shape"):
        if observation.shape != space.shape:
            why = f": its shape is {observation.shape}, expected {space.shape}"
        elif observation.dtype != space.dtype:
            why = f": its dtype is {observation.dtype}, expected {space.dtype}"
        elif (observation != observation).any():  # noqa: PLR0124 - what is no number differs from itself
            why = ": it holds NaN"
    text = f"the observation is not in observation_space {clean(str(space))}{why}; make them agree"
    raise WrongError(f"{text}. It is {clean(repr(observation))}", culprit)


def determinism(options: Json) -> Json:
    """The same seed and the same actions give the same rewards and observations, in another one and in the same again."""
    environment = state["make"]()
    if hasattr(environment, "agent_iter"):
        return {}  # PettingZoo's seed test has looked at those that take turns
    first, other = walk(environment, options["seed"]), walk(state["make"](), options["seed"])
    if first != other:
        text = (
            "the same seed and the same actions gave other observations or rewards, so no run can be repeated or "
            "resumed: draw from self.np_random after super().reset(seed=seed), and from nothing else"
        )
        raise WrongError(text, environment.reset)
    if walk(environment, options["seed"]) != first:
        text = (
            "a second episode from the same seed is another one: something of the first survives reset; set "
            "everything that an episode changes anew in reset"
        )
        raise WrongError(text, environment.reset)
    return {}


def walk(environment: Any, seed: int) -> list[str]:
    """A short random episode as text."""
    lines = [repr(begin(environment, seed))]
    for _ in range(20):
        answer = environment.step(anything(environment))
        lines.append(repr(answer[:4]))
        if not environment.agents if hasattr(environment, "possible_agents") else answer[2] or answer[3]:
            break
    return lines


def anything(environment: Any) -> Any:
    """A random action, or one of every agent."""
    if not hasattr(environment, "possible_agents"):
        return environment.action_space.sample()
    return {agent: environment.action_space(agent).sample() for agent in environment.agents}


def leak(_options: Json) -> Json:
    """Many resets: memory, open files and threads must not grow with them."""
    environment = state["make"]()
    for seed in range(RESETS // 4):
        environment.reset(seed=seed)
    before = held()
    for seed in range(RESETS):
        environment.reset(seed=seed)
    after = held()
    grown = {name: after[name] - before[name] for name in before}
    limits = {"bytes of memory": LEAKED_BYTES * RESETS, "open files": RESETS // 2, "threads": RESETS // 2}
    for name, limit in limits.items():
        if grown[name] > limit:
            text = f"{RESETS} resets left {grown[name]} {name} behind; let go in reset of what the last episode held"
            raise WrongError(text, environment.reset)
    return {"resets": RESETS}


def held() -> dict[str, int]:
    """What this process holds."""
    try:
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - pathlib costs start-up time
    except OSError:
        files = 0
    return {"bytes of memory": memory_bytes(), "open files": files, "threads": threading.active_count()}


def rollouts(options: Json) -> Json:
    """Random episodes, as many as time allows."""
    environment = state["make"]()
    totals: list[float] = []
    lengths: list[int] = []
    act = parallel_step if options["multi_agent"] else single_step
    deadline = time.monotonic() + options["seconds"]
    while len(totals) < options["episodes"] and time.monotonic() < deadline:
        state["seen"] = begin(environment, len(totals))
        total, length, over = 0.0, 0, False
        while not over and time.monotonic() < deadline:
            each, over = act(environment, drawn)
            total, length = total + sum(each), length + 1
        totals.append(total)
        lengths.append(length)
    count = len(totals)
    return {"episodes": count, "mean_return": sum(totals) / count, "mean_length": sum(lengths) / count}


def profile(options: Json) -> Json:
    """Steps a second, processor and memory of one environment, over several of them."""
    count = options["environments"]
    before = memory_bytes()
    walks = [random_rewards(state["make"](), options) for _ in range(count)]
    for one in walks:
        next(one)
    taken = 0
    shares: list[float] = []
    start, start_cpu = time.monotonic(), time.process_time()
    mark, mark_cpu = start, start_cpu
    while (now := time.monotonic()) < start + options["seconds"]:
        next(walks[taken % count])
        taken += 1
        if now - mark >= WINDOW_S:
            cpu = time.process_time()
            shares.append(100 * (cpu - mark_cpu) / (now - mark))
            mark, mark_cpu = now, cpu
    wall = time.monotonic() - start
    average = 100 * (time.process_time() - start_cpu) / wall
    return {
        "steps_per_second": taken / wall,
        "avg_cpu_per_env": average,
        "peak_cpu_per_env": max([*shares, average]),
        "memory_per_env_gb": max(0, memory_bytes() - before) / count / 2**30,
    }


def memory_bytes() -> int:
    """What this process holds now; its peak where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs start-up time
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


STAGES: Mapping[str, Callable[[Json], Json]] = {
    "import": load,
    "construct": construct,
    "api": api,
    "steps": steps,
    "idle": idle,
    "rewards": rewards,
    "determinism": determinism,
    "leak": leak,
    "rollouts": rollouts,
    "profile": profile,
}
sys.dont_write_bytecode = True
