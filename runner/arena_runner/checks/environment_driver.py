"""Runs inside the sandbox, beside the user's environment: imports it, checks it, steps it, measures it.

Standard library, plus gymnasium and PettingZoo where the interpreter has them. Each call gets the name of a stage
and JSON, and gives JSON back; what goes wrong in the user's code is an answer with the deepest line of their own
files. This file is copied into the box; the runner itself never imports it.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import math
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up time
WINDOW_S = 0.1
LONGEST = 300
state: Json = {}


class NotChecked(Exception):  # noqa: N818 - its text is a warning, not an error
    """This stage cannot be run here."""


def run(stage: str, text: str, _unused: str) -> Json:
    """One stage; `{"ok": …}` with warnings and values, or the error and where it is."""
    options = json.loads(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            said = STAGES[stage](options)
        except NotChecked as why:
            return {"ok": True, "warnings": [str(why)], "values": {}}
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its answer
            return {"ok": False, **fault(error)}
    texts = [clean(str(one.message)) for one in caught if not issubclass(one.category, DeprecationWarning)]
    return {"ok": True, "warnings": list(dict.fromkeys(texts))[:10], "values": said}


def fault(error: BaseException) -> Json:
    """An exception in one line, with the deepest line that is the user's."""
    file, line = "", 0
    for frame in traceback.extract_tb(error.__traceback__):
        mine = os.path.abspath(frame.filename) == os.path.abspath(__file__)  # noqa: PTH100
        if frame.filename.startswith(HERE + os.sep) and not mine:
            file, line = os.path.relpath(frame.filename, HERE), frame.lineno or 0
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(HERE):
        file, line = os.path.relpath(str(error.filename), HERE), error.lineno or 0
    text = f"{type(error).__name__}: {clean(str(error))}" if str(error) else type(error).__name__
    return {"error": text, "file": file, "line": line}


def clean(text: str) -> str:
    """One bounded line, without terminal colours."""
    parts = text.replace("\x1b[33m", "").replace("\x1b[0m", "").split()
    line = " ".join(parts)
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


def load(options: Json) -> Json:
    """Import the module and find the class."""
    module_name, _, name = options["entrypoint"].partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, name, None)
    if not callable(found):
        names = sorted(key for key, value in vars(module).items() if inspect.isclass(value))
        raise TypeError(f"{module_name} has no class {name}; it has: {', '.join(names) or 'none'}")
    state["make"] = lambda: found(**options["config"])
    return {}


def construct(options: Json) -> Json:
    """Make one, and say what it sees and does."""
    environment = state["environment"] = state["make"]()
    if options["multi_agent"]:
        agents = list(getattr(environment, "possible_agents", ()))
        if not agents:
            raise TypeError("it has no possible_agents, which every PettingZoo environment has")
        spaces = {a: (environment.observation_space(a), environment.action_space(a)) for a in agents}
        sees, does = ({a: str(pair[n]) for a, pair in spaces.items()} for n in (0, 1))
        return {"observation_space": clean(str(sees)), "action_space": clean(str(does)), "agents": agents}
    missing = [n for n in ("observation_space", "action_space") if getattr(environment, n, None) is None]
    if missing:
        raise TypeError(f"it has no {' and no '.join(missing)}")
    return {
        "observation_space": clean(str(environment.observation_space)),
        "action_space": clean(str(environment.action_space)),
    }


def api(options: Json) -> Json:
    """What the library itself demands."""
    if options["multi_agent"]:
        return multi_agent_api()
    try:
        from gymnasium.utils.env_checker import check_env
    except ImportError as missing:
        raise NotChecked(
            f"gymnasium is not installed here ({missing.name}): its check_env was not run"
        ) from None
    check_env(state["make"](), skip_render_check=True)
    return {}


def multi_agent_api() -> Json:
    """PettingZoo's own tests, by the kind of environment."""
    try:
        from pettingzoo import ParallelEnv
        from pettingzoo.test import api_test, parallel_api_test
    except ImportError as missing:
        raise NotChecked(
            f"PettingZoo is not installed here ({missing.name}): its tests were not run"
        ) from None
    environment = state["make"]()
    if isinstance(environment, ParallelEnv):
        parallel_api_test(environment, num_cycles=50)
    else:
        api_test(environment, num_cycles=50)
    return {}


def steps(options: Json) -> Json:
    """Random steps, with a look at everything that comes back."""
    rewards: list[float] = []
    for reward in itertools.islice(random_rewards(state["environment"], options), options["steps"]):
        if not math.isfinite(reward):
            raise ValueError(f"step {len(rewards) + 1} was paid {reward}, which is no finite number")
        rewards.append(reward)
    return {"steps": len(rewards), "mean_reward": sum(rewards) / len(rewards)}


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
    observation = environment.reset(seed=seed)
    if hasattr(getattr(environment, "action_space", None), "seed"):
        environment.action_space.seed(seed)
    return observation


def single_step(environment: Any) -> tuple[float, bool]:
    """One random action of one agent."""
    answer = environment.step(environment.action_space.sample())
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise TypeError(
            f"step gives (observation, reward, terminated, truncated, info), not {clean(repr(answer))}"
        )
    observation, reward, terminated, truncated, _ = answer
    space = environment.observation_space
    if hasattr(space, "contains") and not space.contains(observation):
        raise ValueError(f"observation {clean(repr(observation))} is not in observation_space {space}")
    return float(reward), bool(terminated or truncated)


def parallel_step(environment: Any) -> tuple[float, bool]:
    """One random action of every agent, or of the one whose turn it is."""
    if not hasattr(environment, "agent_iter"):
        actions = {agent: environment.action_space(agent).sample() for agent in environment.agents}
        _, rewards, _, _, _ = environment.step(actions)
        return float(sum(rewards.values())), not environment.agents
    agent = environment.agent_selection
    _, reward, terminated, truncated, _ = environment.last()
    environment.step(None if terminated or truncated else environment.action_space(agent).sample())
    return float(reward), not environment.agents


def determinism(options: Json) -> Json:
    """The same seed and the same actions give the same rewards and observations, twice."""
    if options["multi_agent"]:
        return {}
    first, second = (walk(state["make"](), options["seed"]) for _ in range(2))
    if first != second:
        warnings.warn("the same seed and actions gave other observations or rewards", stacklevel=1)
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


STAGES: dict[str, Callable[[Json], Json]] = {
    "import": load,
    "construct": construct,
    "api": api,
    "steps": steps,
    "determinism": determinism,
    "rollouts": rollouts,
    "profile": profile,
}
sys.dont_write_bytecode = True
