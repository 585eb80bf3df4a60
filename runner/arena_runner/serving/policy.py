"""One trained policy that answers: observations of the wire in, greedy actions out.

What is wrong with a request is one `ObservationError` that names the part and the shape it should have had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_runner.policies import spaces
from arena_runner.policies.crew import Crew
from arena_runner.policies.port import MASK, Memory
from arena_runner.policies.spaces import Categories, Choice, Image, Part, Spaces
from arena_runner.serving import arrays
from arena_runner.serving.policy_protocol import Acted, Observed


class ObservationError(ArenaError):
    """An observation, mask or hidden state that this policy cannot take."""


class Policy:
    """The only member of a crew; it has acted once before anybody may ask it."""

    def __init__(self, crew: Crew) -> None:
        assert isinstance(crew.spaces, Spaces)
        self._crew, self.spaces = crew, crew.spaces
        _, memory = self._greedy(self._blank(), {})
        self._remembers = {name: tuple(value.shape[2:]) for name, value in memory.items()}

    def act(self, asked: Observed) -> Acted:
        """Decide for every row."""
        if asked.env_defined_actions is not None:
            raise ObservationError("env_defined_actions are for several agents; this policy is one agent")
        rows = asked.batch_size
        seen = self._seen(asked, rows)
        actions, memory = self._greedy(seen, self._memory(asked, rows))
        done = spaces.decode(self.spaces.does, actions)
        hidden = {name: value[0].numpy() for name, value in memory.items()}
        return Acted(action=arrays.encode(done), hidden_state=arrays.encode(hidden) if hidden else None)

    def probe(self) -> Acted:
        """One real action, on an observation of zeros."""
        actions, _ = self._greedy(self._blank(), {})
        return Acted(action=arrays.encode(spaces.decode(self.spaces.does, actions)))

    def _greedy(
        self, seen: Mapping[str, NDArray[Any]], memory: Memory
    ) -> tuple[NDArray[Any], Mapping[str, Tensor]]:
        tensors = {name: torch.from_numpy(np.array(value)).unsqueeze(0) for name, value in seen.items()}
        with torch.no_grad():
            acted = self._crew.algorithm.greedy(self._crew.groups[0], tensors, memory)
        actions = acted.actions[0].numpy()
        if not np.isfinite(actions).all():
            raise ObservationError("the policy's action is not finite")
        return actions, acted.memory

    def _blank(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {}
        for name, part in self.spaces.sees.items():
            shape, dtype = spaces.stored(part)
            found[name] = (np.ones if name == MASK else np.zeros)((1, *shape), dtype)
        return found

    def _seen(self, asked: Observed, rows: int) -> dict[str, NDArray[Any]]:
        given = spaces.flatten(arrays.decode(asked.obs, "obs"))
        if asked.action_mask is not None:
            given[MASK] = arrays.decode(asked.action_mask, MASK)
        sees = self.spaces.sees
        if set(given) - {MASK} != set(sees) - {MASK} or (MASK in sees and MASK not in given):
            parts = f"has {', '.join(sorted(given)) or 'nothing'}; expected {', '.join(sorted(sees))}"
            raise ObservationError(f"the observation {parts}")
        found = {name: _part(name, part, given[name], rows) for name, part in sees.items()}
        if MASK in given:
            found[MASK] = self._mask(given[MASK], rows)
        return found

    def _mask(self, value: NDArray[Any], rows: int) -> NDArray[Any]:
        does = self.spaces.does
        if not isinstance(does, Choice):
            raise ObservationError("action_mask is for discrete actions; this policy's are continuous")
        if not isinstance(value, np.ndarray):
            raise ObservationError("action_mask: expected one array")
        mask = value.astype(np.float32)
        _same("action_mask", mask, (rows, does.width))
        ends = np.cumsum(does.sizes)[:-1]
        if not all((part >= 0.5).any(-1).all() for part in np.split(mask, ends, -1)):
            raise ObservationError("action_mask allows no action in at least one row")
        return mask

    def _memory(self, asked: Observed, rows: int) -> dict[str, Tensor]:
        if asked.hidden_state is None:
            return {}
        given = arrays.decode(asked.hidden_state, "hidden_state")
        wanted = self._remembers
        if not isinstance(given, dict) or set(given) != set(wanted):
            parts = ", ".join(sorted(wanted)) or "none: this policy has no memory"
            raise ObservationError(f"hidden_state: expected what the last answer gave ({parts})")
        for name, shape in wanted.items():
            _same(f"hidden_state.{name}", given[name], (rows, *shape))
        return {
            name: torch.from_numpy(np.array(value, dtype=np.float32)).unsqueeze(0)
            for name, value in given.items()
        }


def _part(name: str, part: Part, value: Any, rows: int) -> NDArray[Any]:
    """A part of `rows` observations, as it is stored."""
    wanted = (rows, *_shape(part))
    array = np.asarray(value)
    shaped_alike = array.size == math.prod(wanted) and array.shape[:1] == (rows,)
    if isinstance(part, Image) or not shaped_alike:  # a vector may come in the environment's own shape
        _same(name, array, wanted)
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


def _same(name: str, array: NDArray[Any], wanted: tuple[int, ...]) -> None:
    if np.shape(array) != wanted:
        raise ObservationError(f"{name}: expected shape {wanted} (batch first), got {np.shape(array)}")
