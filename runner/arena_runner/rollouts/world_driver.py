"""Runs inside the sandbox: some environments of the user's class, stepped together, what they show in shared memory.

Actions and the seeds of the next episodes come through that memory, and everything an environment answers goes back
through it; the pipe carries a word for "go" and a word for "done". An episode that ends is followed by the next one
within the same step. Copied into the box beside the user's files; needs numpy and gymnasium of its interpreter.
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
    from arena_runner.checks.box_code import Json, WrongError, clean, fault, maker, paid, time_limit
else:
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
    """Make the environments, and say what they see and do."""
    options = json.loads(text)
    state["seconds"] = options["seconds"]
    state["make"] = make = maker(options["entrypoint"], options["config"])
    envs = state["envs"] = [make() for _ in range(options["rows"])]
    first = envs[0]
    for name in ("observation_space", "action_space"):
        if getattr(first, name, None) is None:
            raise WrongError(f"it has no {name}", type(first))
    _, info = reset(first, 0)
    parts = leaves(first.observation_space)
    metadata = getattr(first, "metadata", None) or {}
    state.update(parts=parts, longest=options["longest"], once=options["once"])
    state.update(ticks=[0] * len(envs), going=list(range(len(envs))))
    return {
        "sees": described(first.observation_space),
        "does": described(first.action_space),
        "parts": [[name, list(shape), dtype] for name, (shape, dtype, _) in parts.items()],
        "masked": MASK in info and MASK not in parts,
        "films": "rgb_array" in metadata.get("render_modes", ()),
        "fps": float(metadata.get("render_fps") or 0),
    }


def share(text: str) -> Json:
    """Open the memory: arrays by name, as the other side has laid them out."""
    options = json.loads(text)
    raw = mmap.mmap(options["descriptor"], options["size"])
    fields = {
        name: np.ndarray(tuple(shape), dtype, raw, offset)
        for name, (offset, shape, dtype) in options["fields"].items()
    }
    state["fields"] = fields
    state["after"] = {name: fields[f"after/{name}"] for name in state["parts"]}
    state["seen"] = {name: fields[f"seen/{name}"] for name in state["parts"]}
    for kind in ("after", "seen"):
        if f"{kind}/{MASK}" in fields and MASK not in state[kind]:
            state[kind][MASK] = fields[f"{kind}/{MASK}"]
    state["scalar"] = options["scalar"]
    return {}


def start(_text: str) -> Json:
    """Begin an episode in every environment."""
    state["going"] = list(range(len(state["envs"])))
    for row in state["going"]:
        begin_episode(row)
    return {}


def step(_text: str) -> Json:
    """One step of every environment whose episode goes on."""
    fields, after = state["fields"], state["after"]
    actions, paid = fields["actions"], fields["reward"]
    over, cut = fields["terminated"], fields["truncated"]
    paid[:], over[:], cut[:] = 0, False, False
    for row in state["going"].copy():
        env = state["envs"][row]
        seen, reward, terminated, truncated, info = stepped(env, actions[row])
        state["ticks"][row] += 1
        lay(after, row, seen, info, env.step)
        paid[row], over[row] = reward, terminated
        cut[row] = truncated or state["ticks"][row] == state["longest"]
        if not (over[row] or cut[row]):
            continue
        if state["once"]:
            state["going"].remove(row)
        else:
            begin_episode(row)
    for name, (_, _, check) in state["parts"].items():
        if not check(after[name]):
            row = next(n for n, value in enumerate(after[name]) if not check(value))
            raise outside(name, after[name][row], state["envs"][row].step)
    return {}


def replay(text: str) -> Json:
    """Play the running episode of one environment again."""
    options = json.loads(text)
    row, env = options["row"], state["envs"][options["row"]]
    begin_episode(row)
    kept = state["fields"]["actions"]
    for action in np.asarray(options["actions"], kept.dtype).reshape(-1, *kept.shape[1:]):
        seen, _, _, _, info = stepped(env, action)
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
    seen, reward, terminated, truncated, info = stepped(env, state["fields"]["actions"][0])
    lay(state["seen"], 0, seen, info, env.step)
    return {"picture": picture(env), "reward": reward, "over": bool(terminated or truncated)}


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
    for name, (_, _, check) in state["parts"].items():
        if not check(state["seen"][name][row]):
            raise outside(name, state["seen"][name][row], env.reset)


def outside(name: str, value: Any, culprit: Any) -> WrongError:
    """A part that has the right shape and yet is not in its space."""
    return WrongError(f"{name} is {clean(repr(value))}, which is not in its space", culprit)


def reset(env: Any, seed: int) -> tuple[Any, Json]:
    """Its first observation and info."""
    answer = env.reset(seed=seed)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise WrongError(f"reset gives (observation, info), not {clean(repr(answer))}", env.reset)
    return answer


def stepped(env: Any, action: Any) -> tuple[Any, float, bool, bool, Json]:
    """What a step answers, if it is one."""
    answer = env.step(action if state["scalar"] else action.copy())
    if not isinstance(answer, tuple) or len(answer) != 5:
        text = f"step gives (observation, reward, terminated, truncated, info), not {clean(repr(answer))}"
        raise WrongError(text, env.step)
    paid(answer[1], env.step)
    return answer


def lay(into: Mapping[str, Any], row: int, seen: Any, info: Json, culprit: Any) -> None:
    """Put an observation into its row, if it has the shape that its space says; values are looked at by the batch."""
    if len(into) == 1 and ONE in into and getattr(seen, "shape", None) == state["parts"][ONE][0]:
        into[ONE][row] = seen
        return
    found: Json = {}
    flatten(seen, "", found)
    if MASK in into and MASK not in state["parts"]:
        if MASK not in info:
            raise WrongError(f"info has no {MASK} this time; it must come with every step", culprit)
        into[MASK][row] = np.asarray(info[MASK], dtype=np.float32).ravel()
    for name, (shape, _, _) in state["parts"].items():
        if name not in found:
            known = ", ".join(sorted(found)) or "nothing"
            raise WrongError(f"the observation has no {name}, which its space has; it has {known}", culprit)
        value = found[name]
        if np.shape(value) != shape:
            text = f"{name} has shape {np.shape(value)}; its space says {shape}"
            raise WrongError(text, culprit)
        try:
            into[name][row] = value
        except (TypeError, ValueError) as problem:
            text = f"{name} is {clean(repr(value))}, no array of numbers"
            raise WrongError(text, culprit) from problem


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
