"""Q-learning finds the values of a walk that value iteration gives exactly: what is bootstrapped is right, not only run."""

from __future__ import annotations

import pytest
import torch
from playground import choices, crew_of

from arena_runner.algorithms import dqn, rainbow_dqn
from arena_runner.policies.port import Batch

STATES, GAMMA, UPDATES = 5, 0.8, 500
KNOBS = {"lr": 3e-3, "tau": 0.05}


def walk():
    """All steps of a walk left or right: the right end pays 1 and is the end, the left end is a wall."""
    state = torch.arange(STATES).repeat_interleave(2)
    action = torch.arange(2).repeat(STATES)
    after = (state + 2 * action - 1).clamp(0, STATES - 1)
    over = ((state == STATES - 1) & (action == 1)).float()
    return state, action, after, over


def exact():
    """Value iteration (STATES, 2)."""
    _, _, after, over = walk()
    values = torch.zeros(STATES, 2)
    for _ in range(200):
        values = (over + GAMMA * (1 - over) * values.amax(1)[after]).view(STATES, 2)
    return values


def batch(shake=None):
    state, action, after, over = walk()
    hot = torch.eye(STATES)
    return Batch(
        seen={"obs": hot[state].unsqueeze(0)},
        after={"obs": hot[after].unsqueeze(0)},
        actions=action.view(1, -1, 1),
        reward=over.unsqueeze(0),
        over=over.unsqueeze(0),
        discount=torch.tensor([[GAMMA]]),
        weight=torch.full((1, len(state)), 1 / len(state)),
        kept={"importance": torch.ones(1, len(state))},
        shake=shake,
    )


@pytest.mark.parametrize("knobs", [{"double": False}, {"double": True}, {"double": True, "dueling": True}])
def test_dqn_finds_the_values_of_a_walk(knobs):
    crew = crew_of("DQN", 1, sees=STATES, does=choices(2), algorithm={**KNOBS, **knobs})
    group = crew.groups[0]

    for _ in range(UPDATES):
        dqn.update(group, batch())

    found = dqn.worth(group.nets["q"], {"obs": torch.eye(STATES).unsqueeze(0)})[0]
    assert torch.allclose(found, exact(), atol=0.05)


def test_rainbow_finds_the_values_of_a_walk():
    knobs = {**KNOBS, "num_atoms": 21, "v_min": 0.0, "v_max": 1.0, "noise_std": 0.1}
    group = crew_of("Rainbow DQN", 1, sees=STATES, does=choices(2), algorithm=knobs).groups[0]
    dice = torch.Generator().manual_seed(1)

    for _ in range(UPDATES):
        rainbow_dqn.update(group, batch(torch.randn(1, 1, rainbow_dqn.shakes(group), generator=dice)))

    logs = rainbow_dqn.chances(group, group.nets["q"], {"obs": torch.eye(STATES).unsqueeze(0)})
    assert torch.allclose(rainbow_dqn.worth(group, logs)[0], exact(), atol=0.05)
