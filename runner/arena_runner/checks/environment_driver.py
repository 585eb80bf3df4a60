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
        return {"observation_space": clean(str(sees)), "action_space": clean(str(does)), "agents": agents}
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
    walk = random_rewards(state["environment"], options)
    rewards = list(itertools.islice(walk, options["steps"]))
    low, high = min(rewards), max(rewards)
    declared = getattr(state["environment"], "reward_range", None)
    if declared is not None and not (declared[0] <= low and high <= declared[1]):
        text = f"rewards were between {low:g} and {high:g}; its reward_range says {declared[0]:g} to {declared[1]:g}"
        raise WrongError(text, state["environment"].step)
    if max(-low, high) > LARGE_REWARD:
        said = (
            f"rewards reach {max(-low, high, key=abs):g}: value functions learn badly from such; scale them"
        )
        warnings.warn(said, stacklevel=1)
    mean = sum(rewards) / len(rewards)
    return {"steps": len(rewards), "mean_reward": mean, "least_reward": low, "greatest_reward": high}


def idle(options: Json) -> Json:
    """The same action again and again: nothing, where there is such an action."""
    if options["multi_agent"]:
        return {}
    environment = state["environment"]
    action = nothing(environment.action_space)
    begin(environment, 0)
    for _ in range(options["steps"]):
        if single_step(environment, action)[1]:
            begin(environment, 0)
    return {"idle_action": clean(repr(action))}


def nothing(space: Any) -> Any:
    """The action that comes nearest to doing nothing."""
    kind = type(space).__name__
    if kind == "Discrete":
        return space.start
    if kind == "Box":
        return (space.sample() * 0).clip(space.low, space.high).astype(space.dtype)
    return space.sample() * 0 if kind in {"MultiDiscrete", "MultiBinary"} else space.sample()


def random_rewards(environment: Any, options: Json) -> Iterator[float]:
    """Rewards of random actions for ever; an episode that ends is followed by another."""
    seed = itertools.count()
    act = parallel_step if options["multi_agent"] else single_step
    while True:
        begin(environment, next(seed))
        over = False
        while not over:
            reward, over = act(environment)
            yield reward


def begin(environment: Any, seed: int) -> Any:
    """Reset, and seed the spaces so that two walks are the same."""
    answer = environment.reset(seed=seed)
    if hasattr(getattr(environment, "action_space", None), "seed"):
        environment.action_space.seed(seed)
    if isinstance(answer, tuple) and len(answer) == 2 and not hasattr(environment, "possible_agents"):
        contained(environment, answer[0], environment.reset)
    return answer


def single_step(environment: Any, action: Any = None) -> tuple[float, bool]:
    """One action of one agent, a random one unless it is given."""
    answer = environment.step(environment.action_space.sample() if action is None else action)
    if not isinstance(answer, tuple) or len(answer) != 5:
        text = f"step gives (observation, reward, terminated, truncated, info), not {clean(repr(answer))}"
        raise WrongError(text, environment.step)
    observation, reward, terminated, truncated, _ = answer
    contained(environment, observation, environment.step)
    return paid(reward, environment.step), bool(terminated or truncated)


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
    if options["multi_agent"]:
        return {}
    environment = state["make"]()
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
        answer = environment.step(environment.action_space.sample())
        lines.append(repr(answer[:4]))
        if answer[2] or answer[3]:
            break
    return lines


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
        begin(environment, len(totals))
        total, length, over = 0.0, 0, False
        while not over and time.monotonic() < deadline:
            reward, over = act(environment)
            total, length = total + reward, length + 1
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
    "determinism": determinism,
    "leak": leak,
    "rollouts": rollouts,
    "profile": profile,
}
sys.dont_write_bytecode = True
