"""Environments of user code: sandboxed processes of some environments each, what they show in shared memory.

A step costs every process one word each way over its pipe; observations, rewards, actions and the seeds of the next
episodes are arrays that both sides see. The memory is sealed: nobody inside can make it smaller under our hands. All
processes step at the same time. Nothing is pickled, so an environment may hold whatever it likes.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from arena_gitops.spec.job import EnvironmentInput
from arena_runner import checks
from arena_runner.policies import spaces
from arena_runner.policies.port import MASK
from arena_runner.policies.spaces import Categories, Choice, Continuous, Crowd, Spaces
from arena_runner.ports import Materials
from arena_runner.rollouts.diary import Diary
from arena_runner.rollouts.worlds import Arrays, SeedOf, Stepped, WorldError
from arena_runner.sandbox import Limits
from arena_runner.sandbox.box import Box
from arena_runner.sandbox.libraries import own_python
from arena_runner.sandbox.packages import Wheels
from arena_runner.sandbox.process import Ended, Hung, Process, Program
from arena_runner.sandbox.unpack import unpacked

DRIVER = Path(__file__).with_name("world_driver.py")
CODE = (DRIVER, *(Path(checks.__file__).with_name(f"{name}_code.py") for name in ("agents", "box")))
"""what is copied into the box"""
LIMITS = Limits(call_timeout_s=60.0, calls_per_process=10**9)
LONGEST_JUDGED = 10_000
"""steps after which an episode of evaluation is cut off, where neither the environment nor the manifest does"""
MOST_PROCESSES = 16
LARGEST_MEMORY = 4 << 30
ALIGNED = 64
F_ADD_SEALS, SEALS = 1033, 0x1 | 0x2 | 0x4  # seal itself, shrink, grow: linux/fcntl.h


@dataclass(frozen=True, slots=True)
class Source:
    """A custom environment on this machine, and how much of the machine it may have."""

    environment: EnvironmentInput
    files: Path
    """folder that holds its files"""
    names: tuple[str, ...]
    """those files"""
    wheels: Wheels | None = None
    """what it requires; None: this machine's package index is asked"""
    processes: int = field(default_factory=lambda: min(MOST_PROCESSES, len(os.sched_getaffinity(0))))
    limits: Limits = LIMITS


class Boxed:
    """A world of a custom environment."""

    def __init__(self, source: Source, rows: int, longest: int | None = None, *, once: bool = False) -> None:
        """So many environments; of one episode each until the next reset, where it is `once`."""
        self.rows, self._once = rows, once
        environment = source.environment
        python = own_python(environment, source.wheels)
        self._box = Box.make(source.files, source.names)
        self._hands: list[_Hand] = []
        try:
            for share in shares(rows, source.processes):
                self._hands.append(_Hand(self._box, python, source.limits, share))
            self._open(environment, source.limits, longest)
        except BaseException:
            self.close()
            raise

    def reset(self, seed_of: SeedOf) -> Arrays:
        """Begin anew."""
        self._seed_of = seed_of
        self._diary.clear()
        self._lay_seeds(range(self.rows))
        self._all("start")
        self._lay_seeds(range(self.rows), 1)
        return self._gathered("seen")

    def step(self, actions: NDArray[Any]) -> Stepped:
        """Every process its own; what ended begins again at once."""
        for agent, wanted in self._decoded(actions).items():
            for hand in self._hands:
                hand.fields[f"actions/{agent}"][:] = wanted[hand.share]
        self._all("step")
        reward, terminated, truncated = (self._column(n) for n in ("reward", "terminated", "truncated"))
        after = self._gathered("after")
        told = Stepped(after, after, reward, terminated, truncated)
        ended = told.ended
        self._diary.note(actions, ended)
        if self._once or not ended.any():
            return told
        self._lay_seeds(np.flatnonzero(ended).tolist(), 1)
        begun = self._gathered("seen")
        seen = {name: _where(ended, begun[name], value) for name, value in after.items()}
        return Stepped(seen, after, reward, terminated, truncated)

    def state(self) -> dict[str, Tensor]:
        """Which episode every environment is in, and what was done in it."""
        return self._diary.state()

    def restore(self, state: Mapping[str, Tensor], seed_of: SeedOf) -> Arrays:
        """Play the running episodes again."""
        self._seed_of = seed_of
        self._diary.restore(state)
        self._lay_seeds(range(self.rows))
        for hand in self._hands:
            for row, played in enumerate(self._diary.played[hand.share]):
                done = self._decoded(np.stack(played)) if played else {}
                actions = [
                    {agent: one[n].tolist() for agent, one in done.items()} for n in range(len(played))
                ]
                hand.ask("replay", {"row": row, "actions": actions})
                hand.answer()
        self._lay_seeds(range(self.rows), 1)
        return self._gathered("seen")

    def film(self, seed: int, *, begin: bool, action: NDArray[Any] | None = None) -> dict[str, Any]:
        """A picture of one more environment, and what is seen in it; it begins, or takes one step."""
        hand = self._hands[0]
        for agent, wanted in self._decoded(action).items() if action is not None else ():
            hand.fields[f"actions/{agent}"][:1] = wanted
        hand.ask("film", {"begin": begin, "seed": seed})
        answer = hand.answer()
        drawn = answer["picture"]
        pixels = np.frombuffer(bytes.fromhex(drawn["bytes"]), np.uint8).reshape(drawn["shape"])
        seen = {name: value[:1] for name, value in self._gathered("seen").items()}
        reward, over = float(answer.get("reward", 0.0)), bool(answer.get("over", False))
        return {"pixels": pixels, "seen": seen, "reward": reward, "over": over}

    def close(self) -> None:
        """End every process."""
        for hand in self._hands:
            hand.close()
        if self._box.root.exists():
            self._box.remove()

    def _open(self, environment: EnvironmentInput, limits: Limits, longest: int | None) -> None:
        options = {
            "entrypoint": environment.entrypoint,
            "config": environment.env_config,
            "multi_agent": environment.multi_agent,
            "seconds": limits.call_timeout_s,
            "longest": longest or 0,
            "once": self._once,
        }
        for hand in self._hands:
            hand.ask("begin", {**options, "rows": hand.rows})
        answers = [hand.answer() for hand in self._hands]
        told = answers[0]
        self._cast = {
            str(one["agent"]): spaces.read(rebuilt(one["sees"]), rebuilt(one["does"])) for one in told["cast"]
        }
        crowd = Crowd(agents=self._cast)
        self.spaces: Spaces | Crowd = crowd if environment.multi_agent else self._cast[""]
        self._places = crowd.places()
        self.films, self.fps = bool(told["films"]), float(told["fps"])
        self._masked = {str(one["agent"]) for one in told["cast"] if one["masked"]}
        parts = {
            f"{one['agent']}/{name}": (tuple(shape), str(dtype))
            for one in told["cast"]
            for name, shape, dtype in one["parts"]
        }
        parts |= {f"{agent}/{MASK}": ((self._cast[agent].does.width,), "<f4") for agent in self._masked}
        for hand in self._hands:
            hand.share_memory(parts, self._cast, () if not environment.multi_agent else (len(self._cast),))
        width = max(place.stop for place in self._places.values())
        self._diary = Diary(self.rows, width, whole=crowd.whole)

    def _decoded(self, actions: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """What each agent does, as its environment wants it."""
        return {a: spaces.decode(own.does, actions[:, self._places[a]]) for a, own in self._cast.items()}

    def _all(self, stage: str) -> None:
        for hand in self._hands:
            hand.ask(stage)
        for hand in self._hands:
            hand.answer()

    def _lay_seeds(self, rows: Sequence[int], later: int = 0) -> None:
        for row in rows:
            hand = self._hands[self._hand_of(row)]
            seed = self._seed_of(row, int(self._diary.episodes[row]) + later)
            hand.fields["seeds"][row - hand.share.start] = seed

    def _hand_of(self, row: int) -> int:
        return next(n for n, hand in enumerate(self._hands) if row < hand.share.stop)

    def _column(self, name: str) -> NDArray[Any]:
        return np.concatenate([hand.fields[name] for hand in self._hands])

    def _gathered(self, kind: str) -> Arrays:
        """Copies, because the next step writes into the same memory."""
        found = {}
        for agent, own in self._cast.items():
            at = f"{agent}/" if agent else ""
            for name, part in own.sees.items():
                value = spaces.encode(part, self._column(f"{kind}/{agent}/{name}"), self.rows)
                if isinstance(part, Categories) and not _offered(value, part.sizes):
                    raise WorldError(f"the environment shows a {at}{name} that its space does not offer")
                found[at + name] = value
            if agent in self._masked:
                found[at + MASK] = self._column(f"{kind}/{agent}/{MASK}")
        return found


class _Hand:
    """One process with its share of the rows."""

    def __init__(self, box: Box, python: Path, limits: Limits, share: slice) -> None:
        self.share, self.rows = share, share.stop - share.start
        self.fields: dict[str, NDArray[Any]] = {}
        self._seconds = limits.call_timeout_s
        self._memory = os.memfd_create("arena-world", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        program = Program(DRIVER.name, "run", python=python, answers="value", shared=(self._memory,))
        self._process = Process(program, box, limits)
        self._loaded = False

    def ask(self, stage: str, options: Mapping[str, Any] | None = None) -> None:
        """Send a stage; `answer` waits for it."""
        try:
            if not self._loaded:
                frame = self._process.load()
                if "error" in frame:
                    raise WorldError(f"the sandbox did not start: {frame['error']['message']}")
                self._loaded = True
            self._process.ask([(stage, json.dumps(options) if options is not None else "", "")])
        except (Hung, Ended) as problem:
            raise WorldError(
                f"the environment could not be started: {problem or 'it took too long'}"
            ) from problem

    def answer(self) -> dict[str, Any]:
        """What the stage gave; WorldError with file and line where user code is at fault."""
        try:
            frame = self._process.answer()
        except Hung as problem:
            raise WorldError(f"the environment took longer than {self._seconds:g} s for a step") from problem
        except Ended as problem:
            raise WorldError(f"the environment's process is gone: {problem}{self._printed()}") from problem
        match frame:
            case {"value": {"ok": True, **values}}:
                return {str(name): value for name, value in values.items()}
            case {"value": {"ok": False, "error": str(text), "file": str(file), "line": int(line)}}:
                raise WorldError(f"{file}:{line}: {text}" if file else text)
            case {"error": {"message": str(text)}}:
                raise WorldError(text)
        raise WorldError("the environment wrote into the sandbox's own channel")

    def share_memory(
        self,
        parts: Mapping[str, tuple[tuple[int, ...], str]],
        cast: Mapping[str, Spaces],
        each: tuple[int, ...],
    ) -> None:
        """Lay out the arrays that both sides see; `each` is the shape of what is told of every agent."""
        wanted: dict[str, tuple[tuple[int, ...], str]] = {
            **{f"actions/{agent}": _acted(own.does) for agent, own in cast.items()},
            "seeds": ((), "<i8"),
            "reward": (each, "<f4"),
            "terminated": (each, "|b1"),
            "truncated": (each, "|b1"),
            **{f"{kind}/{name}": part for kind in ("after", "seen") for name, part in parts.items()},
        }
        size, fields = 0, {}
        for name, (shape, dtype) in wanted.items():
            if np.dtype(dtype).kind not in "biuf":
                raise WorldError(f"{name} is of {dtype}; observations are numbers")
            whole = (self.rows, *shape)
            fields[name] = (size, whole, dtype)
            size += -(-math.prod(whole) * np.dtype(dtype).itemsize // ALIGNED) * ALIGNED
        if size > LARGEST_MEMORY:
            raise WorldError(f"observations of {self.rows} environments take {size / 2**30:.1f} GiB")
        os.ftruncate(self._memory, size)
        fcntl.fcntl(self._memory, F_ADD_SEALS, SEALS)
        raw = mmap.mmap(self._memory, size)
        self.fields = {name: np.ndarray(shape, dtype, raw, at) for name, (at, shape, dtype) in fields.items()}
        scalar = [agent for agent, own in cast.items() if not _acted(own.does)[0]]
        self.ask("share", {"descriptor": self._memory, "size": size, "fields": fields, "scalar": scalar})
        self.answer()

    def close(self) -> None:
        """Kill the process; a second call does nothing."""
        self._process.kill()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _printed(self) -> str:
        lines = self._process.output.text().strip().splitlines()
        return f" (its last words: {lines[-1][:200]})" if lines else ""


def _acted(does: Choice | Continuous) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of an action in shared memory."""
    if isinstance(does, Choice):
        return () if does.single else (len(does.sizes),), "<i8"
    return does.shape, "<f4"


def shares(rows: int, processes: int) -> Iterator[slice]:
    """Rows dealt evenly to at most so many processes."""
    count = max(1, min(processes, rows))
    edges = [rows * n // count for n in range(count + 1)]
    return (slice(start, stop) for start, stop in itertools.pairwise(edges))


@contextmanager
def opened(environment: EnvironmentInput, materials: Materials, **more: Any) -> Iterator[Source]:
    """A folder of its own with the environment's files, an archive's contents and our own code; gone afterwards."""
    assert materials.environment is not None
    with tempfile.TemporaryDirectory(prefix="arena-world-") as made:
        folder = Path(made)
        for name in environment.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(materials.environment / name, folder / name)
        names = unpacked(folder, environment.files)
        for ours in CODE:
            shutil.copyfile(ours, folder / ours.name)
        names = (*names, *(ours.name for ours in CODE))
        yield Source(environment, folder, names, materials.wheels, **more)


def rebuilt(told: Mapping[str, Any]) -> Any:
    """A Gymnasium space out of what `world_driver.described` says."""
    made = gymnasium.spaces
    match told:
        case {"kind": "Dict", "spaces": list(inner)}:
            return made.Dict({key: rebuilt(one) for key, one in inner})
        case {"kind": "Tuple", "spaces": list(inner)}:
            return made.Tuple([rebuilt(one) for one in inner])
        case {"kind": "Box", "shape": shape, "dtype": dtype, "low": low, "high": high}:
            ends = [np.broadcast_to(np.asarray(end, dtype), shape) for end in (low, high)]
            return made.Box(ends[0], ends[1], tuple(shape), np.dtype(dtype).type)
        case {"kind": "Discrete", "n": n, "start": start}:
            return made.Discrete(n, start=start)
        case {"kind": "MultiDiscrete", "nvec": nvec, "start": start}:
            return made.MultiDiscrete(np.asarray(nvec), start=np.asarray(start))
        case {"kind": "MultiBinary", "shape": shape}:
            return made.MultiBinary(tuple(shape))
    raise WorldError(f"no such space: {told}")


def _where(ended: NDArray[np.bool_], begun: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    found = after.copy()
    found[ended] = begun[ended]
    return found


def _offered(numbers: NDArray[Any], sizes: Sequence[int]) -> bool:
    return bool(((numbers >= 0) & (numbers < np.asarray(sizes))).all())
