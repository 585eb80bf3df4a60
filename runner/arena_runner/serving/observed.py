"""Observations of the wire, looked at part by part: what does not fit is one error that names the part and its shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from arena_gitops.errors import ArenaError
from arena_runner.policies import spaces
from arena_runner.policies.port import MASK
from arena_runner.policies.spaces import Categories, Choice, Image, Part, Spaces
from arena_runner.serving import arrays

Parts = dict[str, NDArray[Any]]


class ObservationError(ArenaError):
    """An observation, mask or hidden state that this policy cannot take."""


def observed(own: Spaces, obs: JsonValue, mask: JsonValue, rows: int, agent: str = "") -> Parts:
    """What one agent sees in `rows` observations, as it is stored; `agent` where there are several."""
    at = f"{agent}." if agent else ""
    given = spaces.flatten(arrays.decode(obs, f"{at}obs"))
    if mask is not None:
        given[MASK] = arrays.decode(mask, f"{at}{MASK}")
    sees = own.sees
    if given.keys() != sees.keys() and (
        set(given) - {MASK} != set(sees) - {MASK} or (MASK in sees and MASK not in given)
    ):
        whose = f"the observation of {agent}" if agent else "the observation"
        has = ", ".join(sorted(given)) or "nothing"
        raise ObservationError(f"{whose} has {has}; expected {', '.join(sorted(sees))}")
    found = {name: _part(f"{at}{name}", part, given[name], rows) for name, part in sees.items()}
    if MASK in given:
        found[MASK] = _mask(own, f"{at}{MASK}", given[MASK], rows)
    return found


def blank(own: Spaces, rows: int = 1) -> Parts:
    """Observations of zeros, with everything allowed."""
    found: Parts = {}
    for name, part in own.sees.items():
        shape, dtype = spaces.stored(part)
        found[name] = (np.ones if name == MASK else np.zeros)((rows, *shape), dtype)
    return found


def same_shape(name: str, array: NDArray[Any], wanted: tuple[int, ...]) -> None:
    """Refuse an array of another shape."""
    if np.shape(array) != wanted:
        raise ObservationError(f"{name}: expected shape {wanted} (batch first), got {np.shape(array)}")


def _mask(own: Spaces, name: str, value: NDArray[Any], rows: int) -> NDArray[Any]:
    does = own.does
    if not isinstance(does, Choice):
        raise ObservationError(f"{name} is for discrete actions; this policy's are continuous")
    if not isinstance(value, np.ndarray):
        raise ObservationError(f"{name}: expected one array")
    mask = value.astype(np.float32)
    same_shape(name, mask, (rows, does.width))
    ends = np.cumsum(does.sizes)[:-1]
    if not all((part >= 0.5).any(-1).all() for part in np.split(mask, ends, -1)):
        raise ObservationError(f"{name} allows no action in at least one row")
    return mask


def _part(name: str, part: Part, value: Any, rows: int) -> NDArray[Any]:
    """A part of `rows` observations, as it is stored."""
    wanted = (rows, *_shape(part))
    array = np.asarray(value)
    if array.shape != wanted:
        shaped_alike = array.size == math.prod(wanted) and array.shape[:1] == (rows,)
        if isinstance(part, Image) or not shaped_alike:  # a vector may come in the environment's own shape
            same_shape(name, array, wanted)
    if not np.isfinite(array).all():
        raise ObservationError(f"{name}: holds values that are not finite")
    stored = spaces.encode(part, array, rows)
    if isinstance(part, Categories) and ((stored < 0) | (stored >= np.asarray(part.sizes))).any():
        ends = ", ".join(
            f"{start} to {start + size - 1}" for start, size in zip(part.starts, part.sizes, strict=True)
        )
        raise ObservationError(f"{name}: expected categories from {ends}")
    return stored


def _shape(part: Part) -> tuple[int, ...]:
    if isinstance(part, Image) and part.last:
        return part.height, part.width, part.channels
    return spaces.stored(part)[0]
