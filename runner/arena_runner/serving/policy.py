"""One trained policy that answers: observations of the wire in, greedy actions out; of one agent, or of several by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue
from torch import Tensor

from arena_runner.policies import spaces
from arena_runner.policies.crew import Crew
from arena_runner.policies.port import Memory
from arena_runner.policies.spaces import Crowd, Spaces
from arena_runner.serving import arrays
from arena_runner.serving.observed import ObservationError, Parts, blank, observed, same_shape
from arena_runner.serving.policy_protocol import Acted, Observed


class Policy:
    """The only member of a crew; it has acted once before anybody may ask it."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self.spaces = crew, crew.spaces
        _, memory = self._greedy(self._blank(), {})
        self._remembers = {name: tuple(value.shape[2:]) for name, value in memory.items()}

    def act(self, asked: Observed) -> Acted:
        """Decide for every row."""
        if isinstance(self.spaces, Crowd):
            return self._together(self.spaces, asked)
        if asked.env_defined_actions is not None:
            raise ObservationError("env_defined_actions are for several agents; this policy is one agent")
        rows = asked.batch_size
        seen = observed(self.spaces, asked.obs, asked.action_mask, rows)
        actions, memory = self._greedy(seen, self._memory(asked, rows))
        hidden = {name: value[0].numpy() for name, value in memory.items()}
        done = spaces.decode(self.spaces.does, actions)
        return Acted(action=arrays.encode(done), hidden_state=arrays.encode(hidden) if hidden else None)

    def probe(self) -> Acted:
        """One real action, on an observation of zeros."""
        actions, _ = self._greedy(self._blank(), {})
        if isinstance(self.spaces, Crowd):
            return Acted(action=arrays.encode(_shared_out(self.spaces, actions)))
        return Acted(action=arrays.encode(spaces.decode(self.spaces.does, actions)))

    def _together(self, crowd: Crowd, asked: Observed) -> Acted:
        """Actions by agent, of those that are seen: who has left the game is asked nothing."""
        self._memory(asked, asked.batch_size)
        rows, obs = asked.batch_size, _by_agent(crowd, "obs", asked.obs)
        if not obs:
            raise ObservationError(f"obs is of no agent; expected {', '.join(crowd.agents)}")
        masks = _by_agent(crowd, "action_mask", asked.action_mask)
        given = _by_agent(crowd, "env_defined_actions", asked.env_defined_actions)
        seen: Parts = {}
        for agent, own in crowd.agents.items():
            there = agent in obs
            parts = observed(own, obs[agent], masks.get(agent), rows, agent) if there else blank(own, rows)
            seen |= {f"{agent}/{name}": value for name, value in parts.items()}
        actions, _ = self._greedy(seen, {})
        done = _shared_out(crowd, actions)
        for agent, wanted in given.items():
            done[agent] = _defined(agent, done[agent], arrays.decode(wanted, f"{agent}.env_defined_actions"))
        return Acted(action=arrays.encode({agent: done[agent] for agent in crowd.agents if agent in obs}))

    def _greedy(self, seen: Parts, memory: Memory) -> tuple[NDArray[Any], Mapping[str, Tensor]]:
        tensors = {name: torch.from_numpy(np.array(value)).unsqueeze(0) for name, value in seen.items()}
        with torch.inference_mode():
            acted = self._crew.algorithm.greedy(self._crew.groups[0], tensors, memory)
        actions = acted.actions[0].numpy()
        if not np.isfinite(actions).all():
            raise ObservationError("the policy's action is not finite")
        return actions, acted.memory

    def _blank(self) -> Parts:
        if isinstance(self.spaces, Spaces):
            return blank(self.spaces)
        return {f"{a}/{n}": value for a, own in self.spaces.agents.items() for n, value in blank(own).items()}

    def _memory(self, asked: Observed, rows: int) -> dict[str, Tensor]:
        if asked.hidden_state is None:
            return {}
        given = arrays.decode(asked.hidden_state, "hidden_state")
        wanted = self._remembers
        if not isinstance(given, dict) or set(given) != set(wanted):
            parts = ", ".join(sorted(wanted)) or "none: this policy has no memory"
            raise ObservationError(f"hidden_state: expected what the last answer gave ({parts})")
        for name, shape in wanted.items():
            same_shape(f"hidden_state.{name}", given[name], (rows, *shape))
        return {
            name: torch.from_numpy(np.array(value, dtype=np.float32)).unsqueeze(0)
            for name, value in given.items()
        }


def _by_agent(crowd: Crowd, what: str, value: JsonValue) -> dict[str, JsonValue]:
    """An object of agents; nothing, and nothing of an agent, are left out."""
    names = ", ".join(crowd.agents)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ObservationError(f"{what}: expected an object by agent ({names})")
    strange = [agent for agent in value if agent not in crowd.agents]
    if strange:
        raise ObservationError(f"{what} names {', '.join(strange)}; this policy's agents are {names}")
    return {agent: one for agent, one in value.items() if one is not None}


def _shared_out(crowd: Crowd, actions: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Joined actions (rows, k) as each agent's own."""
    places = crowd.places()
    return {agent: spaces.decode(own.does, actions[:, places[agent]]) for agent, own in crowd.agents.items()}


def _defined(agent: str, done: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """What the environment itself has decided stands; NaN leaves it to the policy."""
    same_shape(f"{agent}.env_defined_actions", wanted, done.shape)
    return np.where(np.isnan(wanted), done, wanted).astype(done.dtype)
