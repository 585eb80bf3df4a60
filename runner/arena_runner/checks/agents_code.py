"""Runs inside the sandbox: what is looked at in environments of several agents. Copied into the box with the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the cost of importing typing
if TYPE_CHECKING:
    from arena_runner.checks.box_code import Json, WrongError, paid
else:
    from box_code import Json, WrongError, paid


class NotChecked(Exception):  # noqa: N818 - its text is a warning, not an error
    """This stage cannot be run here."""


def in_parallel(make: Callable[..., Any]) -> Callable[..., Any]:
    """What makes environments whose agents act at the same time, also of one where they take turns, if that can be."""

    def made(**more: Any) -> Any:
        environment = make(**more)
        if not hasattr(environment, "agent_iter"):
            return environment
        metadata = getattr(environment, "metadata", None) or {}
        if not metadata.get("is_parallelizable", False):
            text = (
                "its agents take turns, which is checked and not trained on yet: write it as a ParallelEnv, or set "
                'metadata["is_parallelizable"] where all may act at the same time'
            )
            raise WrongError(text, type(environment))
        from pettingzoo.utils.conversions import aec_to_parallel

        return aec_to_parallel(environment)

    return made


def api_of_agents(make: Any) -> Json:
    """PettingZoo's own tests, by the kind of environment."""
    try:
        from pettingzoo import ParallelEnv
        from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
    except ImportError as missing:
        raise NotChecked(
            f"PettingZoo is not installed here ({missing.name}): its tests were not run"
        ) from None
    environment = make()
    if isinstance(environment, ParallelEnv):
        agents_agree(environment)
        parallel_api_test(make(), num_cycles=50)
    else:
        api_test(environment, num_cycles=50)
    try:
        (parallel_seed_test if isinstance(environment, ParallelEnv) else seed_test)(make, num_cycles=20)
    except AssertionError as problem:
        text = (
            f"PettingZoo's seed test: {problem}; draw from a generator that reset(seed=…) seeds, and give every "
            "environment spaces of its own"
        )
        raise WrongError(text, environment.reset) from problem
    return {}


def agents_agree(environment: Any) -> None:
    """Who is said to act, who sees, and who is paid are the same; PettingZoo's own asserts do not say who is not."""
    possible = set(environment.possible_agents)
    seen, _ = environment.reset(seed=0)
    for _ in range(50):
        acting = list(environment.agents)
        if not acting:
            return
        same(set(acting) <= possible, "agents", acting, possible, environment.reset)
        same(set(seen) >= set(acting), "observations", seen, acting, environment.step)
        answer = environment.step({agent: environment.action_space(agent).sample() for agent in acting})
        if not isinstance(answer, tuple) or len(answer) != 5:
            text = (
                "step gives (observations, rewards, terminations, truncations, infos), each a dict by agent"
            )
            raise WrongError(text, environment.step)
        for name, given in zip(("rewards", "terminations", "truncations"), answer[1:4], strict=True):
            same(set(given) >= set(acting), name, given, acting, environment.step)
        seen, (over, cut) = answer[0], answer[2:4]
        left = {agent for agent in acting if not (over[agent] or cut[agent])}
        same(
            left >= set(environment.agents) & set(acting),
            "agents",
            environment.agents,
            left,
            environment.step,
        )


def same(agree: bool, name: str, given: Any, wanted: Any, culprit: Any) -> None:
    """Refuse a list of agents that is not the one it should be."""
    if not agree:
        text = f"{name} are for {sorted(given)}, but the agents that act are {sorted(wanted)}"
        raise WrongError(text, culprit)


Choose = Callable[[Any, Any], Any]
"""(space, mask or None) → an action"""


def parallel_step(environment: Any, choose: Choose) -> tuple[list[float], bool]:
    """One action of every agent, or of the one whose turn it is; what was paid, and whether it is over."""
    if not hasattr(environment, "agent_iter"):
        actions = {agent: choose(environment.action_space(agent), None) for agent in environment.agents}
        _, rewards, _, _, _ = environment.step(actions)
        return [paid(one, environment.step) for one in rewards.values()], not environment.agents
    agent = environment.agent_selection
    seen, reward, terminated, truncated, info = environment.last()
    gone = terminated or truncated
    mask = seen.get("action_mask") if isinstance(seen, dict) else info.get("action_mask")
    environment.step(None if gone else choose(environment.action_space(agent), mask))
    return [paid(reward, environment.step)], not environment.agents
