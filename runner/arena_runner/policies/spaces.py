"""What a policy sees and does, in plain values: a Gymnasium space without Gymnasium, and the way into tensors.

An observation is a mapping of named parts (one part, `obs`, unless the space is a Dict or a Tuple). A part is a
vector of floats, an image (stored as bytes, channels first, scaled when it enters a network), or a category (its
number, entered as one-hot). Batches of parts have any number of leading axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from arena_gitops.errors import ArenaError
from arena_gitops.spec.resource import Frozen

ONE = "obs"
"""name of the only part of an observation that is no mapping"""
UNBOUNDED = 1e30
"""stands for infinity, which JSON does not have"""
_CHANNELS = {1, 3, 4}


class SpaceError(ArenaError):
    """A space that no network here can enter or act in."""


class Vector(Frozen):
    """Floats in a row, however they were shaped."""

    kind: Literal["vector"] = "vector"
    size: int


class Image(Frozen):
    """A picture, channels first."""

    kind: Literal["image"] = "image"
    channels: int
    height: int
    width: int
    last: bool
    """whether the environment gives channels last"""
    scaled: bool
    """whether values are bytes, to be divided by 255"""


class Categories(Frozen):
    """One or several choices, each entered as one-hot."""

    kind: Literal["categories"] = "categories"
    sizes: tuple[int, ...]
    starts: tuple[int, ...]


Part = Annotated[Vector | Image | Categories, Field(discriminator="kind")]
Seen = dict[str, Part]
"""part name → what it is"""


class Choice(Frozen):
    """One or several discrete choices."""

    kind: Literal["choice"] = "choice"
    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    single: bool
    """whether the environment wants a bare number"""

    @property
    def width(self) -> int:
        """Numbers a network gives for it."""
        return sum(self.sizes)


class Continuous(Frozen):
    """Floats between bounds."""

    kind: Literal["continuous"] = "continuous"
    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Numbers a network gives for it."""
        return len(self.low)

    @property
    def bounded(self) -> bool:
        """Whether every value has finite bounds."""
        return all(abs(end) < UNBOUNDED for end in (*self.low, *self.high))


Done = Annotated[Choice | Continuous, Field(discriminator="kind")]


class Spaces(Frozen):
    """What one policy sees and does."""

    sees: Seen
    does: Done


class Crowd(Frozen):
    """What several agents see and do, in the order in which their actions lie side by side."""

    agents: dict[str, Spaces]

    @property
    def sees(self) -> Seen:
        """Everything that anybody sees: `agent/part` → what it is."""
        return {
            f"{agent}/{name}": part for agent, own in self.agents.items() for name, part in own.sees.items()
        }

    @property
    def whole(self) -> bool:
        """Whether all act by choosing, so that actions are whole numbers."""
        return all(isinstance(own.does, Choice) for own in self.agents.values())

    def places(self) -> dict[str, slice]:
        """Where the numbers of each agent's action lie."""
        found, at = {}, 0
        for agent, own in self.agents.items():
            size = len(own.does.sizes) if isinstance(own.does, Choice) else own.does.width
            found[agent] = slice(at, at + size)
            at += size
        return found


def read(observation: Any, action: Any) -> Spaces:
    """Describe a pair of Gymnasium spaces; SpaceError for what has no room."""
    return Spaces(sees=dict(_parts(observation)), does=_action(action))


def _parts(space: Any, name: str = "") -> list[tuple[str, Part]]:
    kind = type(space).__name__
    if kind in {"Dict", "Tuple"}:
        inner = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
        return [part for key, one in inner for part in _parts(one, f"{name}.{key}" if name else str(key))]
    return [(name or ONE, _part(space))]


def _part(space: Any) -> Part:
    match type(space).__name__:
        case "Box":
            return _box(space)
        case "Discrete":
            return Categories(sizes=(int(space.n),), starts=(int(space.start),))
        case "MultiDiscrete":
            sizes = tuple(int(n) for n in np.asarray(space.nvec).ravel())
            starts = tuple(int(n) for n in np.asarray(space.start).ravel())
            return Categories(sizes=sizes, starts=starts)
        case "MultiBinary":
            return Vector(size=int(np.prod(space.shape)))
    raise SpaceError(f"observations of {space} have no room here: use Box, Discrete, Dict or Tuple of them")


def _box(space: Any) -> Part:
    shape = tuple(int(n) for n in space.shape)
    if len(shape) != 3:
        return Vector(size=int(np.prod(shape)))
    last = shape[2] in _CHANNELS and shape[0] not in _CHANNELS
    channels, height, width = (shape[2], shape[0], shape[1]) if last else shape
    return Image(
        channels=channels, height=height, width=width, last=last, scaled=space.dtype == np.dtype(np.uint8)
    )


def _action(space: Any) -> Choice | Continuous:
    match type(space).__name__:
        case "Discrete":
            return Choice(sizes=(int(space.n),), starts=(int(space.start),), single=True)
        case "MultiDiscrete":
            sizes = tuple(int(n) for n in np.asarray(space.nvec).ravel())
            starts = tuple(int(n) for n in np.asarray(space.start).ravel())
            return Choice(sizes=sizes, starts=starts, single=False)
        case "MultiBinary":
            count = int(np.prod(space.shape))
            return Choice(sizes=(2,) * count, starts=(0,) * count, single=False)
        case "Box":
            shape = tuple(int(n) for n in space.shape)
            ends = (np.clip(np.ravel(end), -UNBOUNDED, UNBOUNDED) for end in (space.low, space.high))
            low, high = (tuple(float(x) for x in end) for end in ends)
            return Continuous(low=low, high=high, shape=shape)
    raise SpaceError(f"actions of {space} have no room here: use Discrete, MultiDiscrete, MultiBinary or Box")


def flatten(observation: Any, name: str = "") -> dict[str, Any]:
    """Named parts of one observation, or of a batch that keeps the structure."""
    if isinstance(observation, Mapping):
        inner = observation.items()
    elif isinstance(observation, tuple):
        inner = ((str(n), one) for n, one in enumerate(observation))  # type: ignore[assignment]  # pairs either way
    else:
        return {name or ONE: observation}
    found: dict[str, Any] = {}
    for key, one in inner:
        found |= flatten(one, f"{name}.{key}" if name else str(key))
    return found


def encode(part: Part, value: Any, rows: int) -> NDArray[Any]:
    """A part of `rows` observations as it is stored: (rows, …)."""
    array: NDArray[Any] = np.asarray(value)
    match part:
        case Vector():
            return array.reshape(rows, part.size).astype(np.float32, copy=False)
        case Image():
            dtype = np.uint8 if part.scaled else np.float32
            shape = (
                (part.height, part.width, part.channels)
                if part.last
                else (part.channels, part.height, part.width)
            )
            array = array.reshape(rows, *shape).astype(dtype, copy=False)
            first: NDArray[Any] = np.ascontiguousarray(np.moveaxis(array, -1, 1)) if part.last else array
            return first
        case Categories():
            numbers: NDArray[Any] = array.reshape(rows, len(part.sizes)).astype(np.int64, copy=False)
            from_zero: NDArray[Any] = np.subtract(numbers, np.asarray(part.starts))
            return from_zero


def stored(part: Part) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one stored part."""
    match part:
        case Vector():
            return (part.size,), "float32"
        case Image():
            return (part.channels, part.height, part.width), "uint8" if part.scaled else "float32"
        case Categories():
            return (len(part.sizes),), "int64"


def entered(part: Part) -> int:
    """Numbers that enter a network for a part that is no image."""
    match part:
        case Vector():
            return part.size
        case Categories():
            return sum(part.sizes)
        case Image():
            return part.channels * part.height * part.width


def decode(does: Choice | Continuous, actions: NDArray[Any]) -> NDArray[Any]:
    """Actions as the environment wants them: (rows, k) numbers → (rows,) or (rows, *shape)."""
    if isinstance(does, Choice):
        shifted: NDArray[Any] = np.add(actions.astype(np.int64), np.asarray(does.starts))
        return shifted[:, 0] if does.single else shifted
    clipped: NDArray[Any] = np.clip(actions, np.asarray(does.low), np.asarray(does.high))
    return clipped.reshape(len(actions), *does.shape).astype(np.float32)
