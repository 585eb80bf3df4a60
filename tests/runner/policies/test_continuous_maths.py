"""DDPG, TD3 and SAC against their closed forms and against stable-baselines3's distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from playground import crew_of, drawn, floats
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution

from arena_runner.algorithms import ddpg, sac, td3
from arena_runner.policies.port import Batch, Dice
from arena_runner.policies.spaces import UNBOUNDED, Choice, SpaceError

MEMBERS, ROWS, WIDTH = 3, 8, 2
MATHS = {"DDPG": ddpg, "TD3": td3, "SAC": sac}
SPACE = floats(WIDTH, low=-2.0, high=4.0)


def group_of(name, **knobs):
    """Members whose targets are no longer what they follow."""
    group = crew_of(name, MEMBERS, does=SPACE, algorithm=knobs).groups[0]
    for number, twin in enumerate(MATHS[name].TWINS):
        stack = group.nets[twin]
        with torch.no_grad():
            stack.flat.add_(0.1 * drawn(*stack.flat.shape, seed=number))
    return group


def batch_of(draws=0):
    return Batch(
        seen={"obs": drawn(MEMBERS, ROWS, 4, seed=1)},
        after={"obs": drawn(MEMBERS, ROWS, 4, seed=2)},
        actions=1 + 3 * drawn(MEMBERS, ROWS, WIDTH, seed=7).clamp(-1, 1),
        reward=drawn(MEMBERS, ROWS, seed=3),
        over=(torch.arange(MEMBERS * ROWS).reshape(MEMBERS, ROWS) % 4 == 0).float(),
        discount=torch.tensor([[0.9], [0.99], [0.5]]),
        weight=torch.full((MEMBERS, ROWS), 1 / ROWS),
        noise=drawn(MEMBERS, ROWS, draws, seed=4) if draws else None,
    )


def stepped_by_adam(stack, gradients, lr):
    """What one first step of Adam makes of a stack's parameters."""
    moved = {}
    for (name, value), gradient in zip(stack.params.items(), gradients, strict=True):
        size = gradient / (gradient.abs() + 1e-8)
        moved[name] = value.detach() - lr * size
    return moved


@pytest.mark.parametrize("name", MATHS)
def test_a_space_without_bounds_or_floats_is_refused(name):
    for does in (Choice(sizes=(3,), starts=(0,), single=True), floats(1, low=-UNBOUNDED)):
        with pytest.raises(SpaceError, match=name):
            crew_of(name, 1, does=does)


@pytest.mark.parametrize("name", MATHS)
def test_actions_are_within_the_bounds_of_the_environment(name):
    group = group_of(name)

    actions = MATHS[name].greedy(group, {"obs": 50 * drawn(MEMBERS, ROWS, 4)}, {}).actions

    assert actions.shape == (MEMBERS, ROWS, WIDTH)
    assert (actions >= -2).all()
    assert (actions <= 4).all()


def test_the_critic_of_ddpg_steps_down_the_gradient_of_its_bellman_error():
    group, batch = group_of("DDPG"), batch_of()
    critic = group.nets["critic"]
    ahead = torch.tanh(group.nets["actor_target"](batch.after))
    after = group.nets["critic_target"](batch.after, ahead).squeeze(-1)
    target = (batch.reward + batch.discount * (1 - batch.over) * after).detach()
    done = (batch.actions - 1) / 3  # from [-2, 4] to [-1, 1]
    loss = (critic(batch.seen, done).squeeze(-1) - target).square().mean(-1).sum()
    wanted = stepped_by_adam(critic, torch.autograd.grad(loss, list(critic.params.values())), 1e-3)

    ddpg.update(group, batch)

    assert all(torch.allclose(critic.params[n], wanted[n], atol=1e-5) for n in wanted)


@pytest.mark.parametrize("name", ["DDPG", "TD3"])
def test_actor_and_targets_move_once_in_policy_freq_updates(name):
    group, batch = group_of(name, policy_freq=2), batch_of(WIDTH if name == "TD3" else 0)
    before = {role: stack.flat.clone() for role, stack in group.nets.items()}

    MATHS[name].update(group, batch)
    first = {role: torch.equal(stack.flat, before[role]) for role, stack in group.nets.items()}
    MATHS[name].update(group, batch)
    second = {role: torch.equal(stack.flat, before[role]) for role, stack in group.nets.items()}

    critics = {"critic", "second"} & set(before)
    assert {role for role, still in first.items() if not still} == critics
    assert {role for role, still in second.items() if not still} == set(before)


def test_a_copied_member_keeps_its_parents_rhythm():
    """The actor's turn follows from the critic's step count, which is copied: members may differ."""
    group, batch = group_of("DDPG", policy_freq=2), batch_of()
    group.nets["critic"].steps[1] = 1
    before = group.nets["actor"].flat.clone()

    ddpg.update(group, batch)

    assert [not torch.equal(a, b) for a, b in zip(group.nets["actor"].flat, before, strict=True)] == [
        False,
        True,
        False,
    ]


def test_td3_trusts_the_lesser_critic_on_a_smoothed_action():
    group, batch = group_of("TD3"), batch_of(WIDTH)

    found = td3.targets(group, batch)

    noise = (0.2 * batch.noise).clamp(-0.5, 0.5)
    ahead = (torch.tanh(group.nets["actor_target"](batch.after)) + noise).clamp(-1, 1)
    lesser = torch.minimum(
        group.nets["critic_target"](batch.after, ahead), group.nets["second_target"](batch.after, ahead)
    ).squeeze(-1)
    wanted = batch.reward + batch.discount * (1 - batch.over) * lesser
    assert torch.allclose(found, wanted, atol=1e-6)


def test_the_density_of_sac_is_that_of_stable_baselines3():
    group, seen = group_of("SAC"), {"obs": drawn(MEMBERS, ROWS, 4)}
    actor, noise = group.nets["actor"], drawn(MEMBERS, ROWS, WIDTH, seed=5)
    action, density = sac.squashed(group, seen, noise)
    latent = actor.latent(seen)
    mean, spread = actor.head(latent, 0), actor.head(latent, 1).clamp(-20, 2)

    for member in range(MEMBERS):
        theirs = SquashedDiagGaussianDistribution(WIDTH).proba_distribution(mean[member], spread[member])
        raw = mean[member] + spread[member].exp() * noise[member]
        wanted = theirs.log_prob(torch.tanh(raw), raw)
        assert torch.allclose(action[member], torch.tanh(raw), atol=1e-6)
        assert torch.allclose(density[member], wanted, atol=1e-3)  # theirs adds 1e-6 inside the logarithm


def test_the_target_of_sac_is_worth_and_entropy():
    group, batch = group_of("SAC"), batch_of(2 * WIDTH)
    with torch.no_grad():
        group.nets["actor"].params["log_std"].copy_(torch.tensor([[0.0], [-1.0], [1.0]]))
    ahead = batch.noise[..., WIDTH:]

    action, density = sac.squashed(group, batch.after, ahead)
    lesser = torch.minimum(
        group.nets["critic_target"](batch.after, action), group.nets["second_target"](batch.after, action)
    ).squeeze(-1)
    soft = lesser - torch.tensor([[0.0], [-1.0], [1.0]]).exp() * density
    wanted = batch.reward + batch.discount * (1 - batch.over) * soft

    assert torch.allclose(sac.targets(group, batch, ahead), wanted, atol=1e-5)


@pytest.mark.parametrize(("goal", "rises"), [(100.0, True), (-100.0, False)])
def test_the_temperature_moves_entropy_towards_its_goal(goal, rises):
    group = group_of("SAC", target_entropy=goal)
    before = sac.temperature(group).detach().clone()

    sac.update(group, batch_of(2 * WIDTH))

    assert ((sac.temperature(group) > before) == rises).all()


@pytest.mark.parametrize("name", MATHS)
def test_members_together_are_members_alone(name):
    draws = {"DDPG": 0, "TD3": WIDTH, "SAC": 2 * WIDTH}[name]
    together, batch = group_of(name), batch_of(draws)
    for _ in range(2):
        MATHS[name].update(together, batch)

    for member in range(MEMBERS):
        alone = group_of(name).subset([member])
        for _ in range(2):
            MATHS[name].update(alone, batch.of([member]))
        for role, stack in alone.nets.items():
            assert torch.allclose(together.nets[role].flat[member], stack.flat[0], atol=2e-6), role


@pytest.mark.parametrize("name", MATHS)
def test_until_something_is_learned_any_action_is_tried(name):
    group = crew_of(name, 2, does=floats(WIDTH, -2, 3), training={"learning_delay": 400}).groups[0]
    seen = {"obs": drawn(2, 200, 4)}
    tried, last, learned = (
        MATHS[name].explore(group, seen, dice_of(200, explored), {}).actions for explored in (0, 1, 2)
    )

    for any_action in (tried, last):
        assert any_action.min() < -1.9
        assert any_action.max() > 2.9
        assert any_action.mean().item() == pytest.approx(0.5, abs=0.2)
    assert not torch.equal(tried, learned)


def dice_of(rows, explored):
    return Dice([np.random.default_rng(n) for n in range(2)], rows, explored=explored)
