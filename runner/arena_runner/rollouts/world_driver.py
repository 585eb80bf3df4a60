"""Runs inside the sandbox: some environments of the user's class, stepped together, what they show in shared memory.

Actions and the seeds of the next episodes come through that memory, and everything an environment answers goes back
through it; the pipe carries a word for "go" and a word for "done". An episode that ends is followed by the next one
within the same step. Who acts in it is its *cast*: agents by name, or one without a name (""), whose spaces are the
environment's own. Copied into the box beside the user's files; needs numpy and gymnasium of its interpreter.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from arena_runner.checks.agents_code import in_parallel
    from arena_runner.checks.box_code import Json, WrongError, clean, fault, maker, paid, time_limit
else:
    from agents_code import in_parallel
    from box_code import Json, WrongError, clean, fault, maker, paid, time_limit

ONE, MASK = "obs", "action_mask"
SMALLEST_SIDE = 160
"""pixels of a filmed picture beyond which it is thinned out"""
state: Json = {}


def run(stage: str, text: str, _unused: str) -> Json:
    """One stage; `{"ok": true, …}`, or the error and where it is."""
    try:
        with time_limit(state.get("seconds", 60.0)):
            return {"ok": True, **STAGES[stage](text)}
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is its answer
        return {"ok": False, **fault(error)}


def begin(text: str) -> Json:
    """Make the environments, and say who acts in them, and what each sees and does."""
    options = json.loads(text)
    state["seconds"] = options["seconds"]
    make = maker(options["entrypoint"], options["config"])
    if several := options["multi_agent"]:
        make = in_parallel(make)
    state["make"] = make
    envs = state["envs"] = [make() for _ in range(options["rows"])]
    first = envs[0]
    members = cast_of(first, several=several)
    state.update(several=several, longest=options["longest"], ticks=[0] * len(envs))
    state["parts"] = {agent: leaves(sees) for agent, (sees, _) in members.items()}
    _, info = reset(first, 0)
    infos = info if several else {"": info}
    metadata = getattr(first, "metadata", None) or {}
    state.update(once=options["once"], going=list(range(len(envs))))
    return {
        "cast": [
            {
                "agent": agent,
                "sees": described(sees),
                "does": described(does),
                "parts": [[n, list(shape), dtype] for n, (shape, dtype, _) in state["parts"][agent].items()],
                "masked": MASK in (infos.get(agent) or {}) and MASK not in state["parts"][agent],
            }
            for agent, (sees, does) in members.items()
        ],
        "films": "rgb_array" in metadata.get("render_modes", ()),
        "fps": float(metadata.get("render_fps") or 0),
    }


def cast_of(env: Any, *, several: bool) -> dict[str, tuple[Any, Any]]:
    """The spaces of everyone who acts."""
    if not several:
        for name in ("observation_space", "action_space"):
            if getattr(env, name, None) is None:
                raise WrongError(f"it has no {name}", type(env))
        return {"": (env.observation_space, env.action_space)}
    agents = list(getattr(env, "possible_agents", ()))
    if not agents:
        raise WrongError(
            "it has no possible_agents, which every environment of several agents has", type(env)
        )
    return {str(agent): (env.observation_space(agent), env.action_space(agent)) for agent in agents}


def share(text: str) -> Json:
    """Open the memory: arrays by name, as the other side has laid them out."""
    options = json.loads(text)
    raw = mmap.mmap(options["descriptor"], options["size"])
    fields = {
        name: np.ndarray(tuple(shape), dtype, raw, offset)
        for name, (offset, shape, dtype) in options["fields"].items()
    }
    state.update(fields=fields, scalar=set(options["scalar"]))
    for kind in ("after", "seen"):
        state[kind] = {agent: laid_out(fields, kind, agent) for agent in state["parts"]}
    return {}


def laid_out(fields: Mapping[str, Any], kind: str, agent: str) -> Json:
    """Arrays of what one agent sees, by their names in its space; a mask of `info` among them."""
    at = f"{kind}/{agent}/"
    return {name: fields[at + name] for name in (*state["parts"][agent], MASK) if at + name in fields}


def start(_text: str) -> Json:
    """Begin an episode in every environment."""
    state["going"] = list(range(len(state["envs"])))
    for row in state["going"]:
        begin_episode(row)
    return {}


def step(_text: str) -> Json:
    """One step of every environment whose episode goes on."""
    fields, after = state["fields"], state["after"]
    for name in ("reward", "terminated", "truncated"):
        fields[name][:] = 0
    for row in state["going"].copy():
        env = state["envs"][row]
        seen, reward, over, cut, info = stepped(env, chosen(row))
        state["ticks"][row] += 1
        lay(after, row, seen, info, env.step)
        cut = cut | (state["ticks"][row] == state["longest"])
        fields["reward"][row], fields["terminated"][row], fields["truncated"][row] = reward, over, cut
        if not ended(over | cut, env):
            continue
        if state["once"]:
            state["going"].remove(row)
        else:
            begin_episode(row)
    for agent, parts in state["parts"].items():
        for name, (_, _, check) in parts.items():
            if not check(after[agent][name]):
                row = next(n for n, value in enumerate(after[agent][name]) if not check(value))
                raise outside(titled(agent, name), after[agent][name][row], state["envs"][row].step)
    return {}


def ended(gone: Any, env: Any) -> bool:
    """Whether the episode has; all agents end it together."""
    if not state["several"]:
        return bool(gone)
    if gone.all() or not gone.any():
        return bool(gone.all())
    names = ", ".join(agent for agent, left in zip(state["parts"], gone, strict=True) if left)
    text = f"{names} left before the other agents did: that has no room yet; end an episode for all at once"
    raise WrongError(text, env.step)


def chosen(row: int) -> Any:
    """What is done in one environment: an action, or one of every agent."""

    def own(agent: str) -> Any:
        action = state["fields"][f"actions/{agent}"][row]
        return action if agent in state["scalar"] else action.copy()

    return {agent: own(agent) for agent in state["parts"]} if state["several"] else own("")


def replay(text: str) -> Json:
    """Play the running episode of one environment again."""
    options = json.loads(text)
    row, env = options["row"], state["envs"][options["row"]]
    begin_episode(row)
    for one in options["actions"]:
        for agent, action in one.items():
            state["fields"][f"actions/{agent}"][row] = action
        seen, _, _, _, info = stepped(env, chosen(row))
        state["ticks"][row] += 1
        lay(state["seen"], row, seen, info, env.step)
    return {}


def film(text: str) -> Json:
    """Make one that draws; gives its first picture."""
    options = json.loads(text)
    if options["begin"]:
        env = state["filmed"] = state["make"](render_mode="rgb_array")
        seen, info = reset(env, options["seed"])
        lay(state["seen"], 0, seen, info, env.reset)
        return {"picture": picture(env)}
    env = state["filmed"]
    seen, reward, over, cut, info = stepped(env, chosen(0))
    lay(state["seen"], 0, seen, info, env.step)
    return {"picture": picture(env), "reward": float(np.sum(reward)), "over": ended(over | cut, env)}


def picture(env: Any) -> Json:
    """What it draws, thinned out to a size that travels."""
    drawn = np.asarray(env.render(), dtype=np.uint8)
    if drawn.ndim != 3 or drawn.shape[2] != 3:
        text = f"render gives a picture of shape (height, width, 3), not {drawn.shape}"
        raise WrongError(text, env.render)
    every = max(1, min(drawn.shape[:2]) // SMALLEST_SIDE)
    high, wide = (side // every for side in drawn.shape[:2])
    squares = drawn[: high * every, : wide * every].reshape(high, every, wide, every, 3)
    small = squares.mean((1, 3)).astype(np.uint8)
    return {"shape": list(small.shape), "bytes": small.tobytes().hex()}


def begin_episode(row: int) -> None:
    """The next episode of one environment, from the seed that was laid ready."""
    env = state["envs"][row]
    seen, info = reset(env, int(state["fields"]["seeds"][row]))
    state["ticks"][row] = 0
    lay(state["seen"], row, seen, info, env.reset)
    for agent, parts in state["parts"].items():
        for name, (_, _, check) in parts.items():
            value = state["seen"][agent][name][row]
            if not check(value):
                raise outside(titled(agent, name), value, env.reset)


def outside(name: str, value: Any, culprit: Any) -> WrongError:
    """A part that has the right shape and yet is not in its space."""
    return WrongError(f"{name} is {clean(repr(value))}, which is not in its space", culprit)


def reset(env: Any, seed: int) -> tuple[Any, Json]:
    """Its first observation and info."""
    answer = env.reset(seed=seed)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise WrongError(f"reset gives (observation, info), not {clean(repr(answer))}", env.reset)
    return answer


def stepped(env: Any, action: Any) -> tuple[Any, Any, Any, Any, Json]:
    """What a step answers, if it is one; rewards and ends are rows of agents where there are several."""
    answer = env.step(action)
    if not isinstance(answer, tuple) or len(answer) != 5:
        text = f"step gives (observation, reward, terminated, truncated, info), not {clean(repr(answer))}"
        raise WrongError(text, env.step)
    seen, reward, over, cut, info = answer
    if not state["several"]:
        return seen, paid(reward, env.step), bool(over), bool(cut), info
    agents = state["parts"]
    rewards = [paid(reward.get(agent, 0.0), env.step) for agent in agents]
    ends = ([bool(told.get(agent, False)) for agent in agents] for told in (over, cut))
    return (seen, rewards, *map(np.array, ends), info)


def lay(into: Mapping[str, Json], row: int, seen: Any, info: Json, culprit: Any) -> None:
    """Put what everyone sees into its row."""
    try:
        if not state["several"]:
            lay_one("", into[""], row, seen, info)
            return
        for agent in state["parts"]:
            lay_one(agent, into[agent], row, seen.get(agent), info.get(agent) or {})
    except WrongError as wrong:
        wrong.culprit = culprit
        raise


def lay_one(agent: str, into: Json, row: int, seen: Any, info: Json) -> None:
    """Put an observation into its row, if it has the shape that its space says; values are looked at by the batch."""
    parts = state["parts"][agent]
    if agent and seen is None:
        raise WrongError(f"it shows nothing to {agent}: that has no room yet; show something to all agents")
    if len(into) == 1 and ONE in into and getattr(seen, "shape", None) == parts[ONE][0]:
        into[ONE][row] = seen
        return
    found: Json = {}
    flatten(seen, "", found)
    if MASK in into and MASK not in parts:
        if MASK not in info:
            raise WrongError(f"info has no {MASK} this time; it must come with every step")
        into[MASK][row] = np.asarray(info[MASK], dtype=np.float32).ravel()
    for name, (shape, _, _) in parts.items():
        if name not in found:
            known = ", ".join(sorted(found)) or "nothing"
            whose = f"the observation of {agent}" if agent else "the observation"
            raise WrongError(f"{whose} has no {name}, which its space has; it has {known}")
        value = found[name]
        if np.shape(value) != shape:
            raise WrongError(f"{titled(agent, name)} has shape {np.shape(value)}; its space says {shape}")
        try:
            into[name][row] = value
        except (TypeError, ValueError) as problem:
            text = f"{titled(agent, name)} is {clean(repr(value))}, no array of numbers"
            raise WrongError(text) from problem


def titled(agent: str, name: str) -> str:
    """A part as messages name it."""
    return f"{agent}.{name}" if agent else name


def flatten(seen: Any, name: str, into: Json) -> None:
    """Named parts of an observation."""
    if isinstance(seen, Mapping):
        pairs = [(str(key), one) for key, one in seen.items()]
    elif isinstance(seen, tuple):
        pairs = [(str(n), one) for n, one in enumerate(seen)]
    else:
        into[name or ONE] = seen
        return
    for key, one in pairs:
        flatten(one, f"{name}.{key}" if name else key, into)


def leaves(space: Any, name: str = "") -> dict[str, tuple[tuple[int, ...], str, Callable[[Any], bool]]]:
    """Shape, dtype and a check of every part of an observation."""
    kind = type(space).__name__
    if kind in {"Dict", "Tuple"}:
        inner = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
        found = {}
        for key, one in inner:
            found.update(leaves(one, f"{name}.{key}" if name else str(key)))
        return found
    return {name or ONE: leaf(space, kind)}


def leaf(space: Any, kind: str) -> tuple[tuple[int, ...], str, Callable[[Any], bool]]:
    """One part: floats are looked at for numbers that are none, choices for those that are not offered."""
    if kind == "Box":
        return tuple(space.shape), np.dtype(space.dtype).str, lambda value: bool(np.isfinite(value).all())
    if kind == "Discrete":
        first, count = int(space.start), int(space.n)
        return (), "<i8", lambda value: bool(((value >= first) & (value < first + count)).all())
    if kind == "MultiDiscrete":
        low = np.asarray(space.start)
        high = low + space.nvec
        return tuple(np.shape(space.nvec)), "<i8", lambda value: bool(((value >= low) & (value < high)).all())
    if kind == "MultiBinary":
        return tuple(space.shape), "|i1", lambda value: bool(((value == 0) | (value == 1)).all())
    raise WrongError(f"observations of {space} have no room here: use Box, Discrete, Dict or Tuple of them")


def described(space: Any) -> Json:
    """A space as JSON."""
    kind = type(space).__name__
    match kind:
        case "Dict":
            return {"kind": kind, "spaces": [[key, described(one)] for key, one in space.spaces.items()]}
        case "Tuple":
            return {"kind": kind, "spaces": [described(one) for one in space.spaces]}
        case "Box":
            ends = {"low": end(space.low), "high": end(space.high)}
            return {"kind": kind, "shape": list(space.shape), "dtype": np.dtype(space.dtype).str, **ends}
        case "Discrete":
            return {"kind": kind, "n": int(space.n), "start": int(space.start)}
        case "MultiDiscrete":
            nvec, first = np.asarray(space.nvec).tolist(), np.asarray(space.start).tolist()
            return {"kind": kind, "nvec": nvec, "start": first}
        case "MultiBinary":
            return {"kind": kind, "shape": list(space.shape)}
    raise WrongError(
        f"{space} has no room here: use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    )


def end(values: Any) -> Any:
    """One number when all are the same."""
    flat = np.asarray(values).ravel()
    return flat[0].item() if len(flat) and (flat == flat[0]).all() else np.asarray(values).tolist()


def close(_text: str) -> Json:
    """Close every environment."""
    for env in state.get("envs", ()):
        with contextlib.suppress(Exception):  # some have nothing to close and say so loudly
            env.close()
    return {}


STAGES: dict[str, Callable[[str], Json]] = {
    "begin": begin,
    "share": share,
    "start": start,
    "step": step,
    "replay": replay,
    "film": film,
    "close": close,
}
sys.dont_write_bytecode = True
