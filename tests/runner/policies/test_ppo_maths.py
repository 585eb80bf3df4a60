"""PPO against stable-baselines3: advantages, and the gradient of one minibatch."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from playground import crew_of, drawn, floats
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.distributions import CategoricalDistribution, DiagGaussianDistribution
from torch.nn import functional

from arena_runner.algorithms import ppo
from arena_runner.policies import actions
from arena_runner.policies.port import Batch, Dice
from arena_runner.policies.spaces import Choice
from arena_runner.rollouts.collected import advantages

MEMBERS, ROWS = 2, 10


def test_advantages_are_those_of_stable_baselines3():
    steps, each = 7, 3
    reward, value = drawn(1, steps, each, seed=1), drawn(1, steps, each, seed=2)
    ended = (drawn(1, steps, each, seed=3) > 0.5).float()
    last = drawn(1, each, seed=4)
    space = gymnasium.spaces.Box(-1, 1, (2,))
    buffer = RolloutBuffer(steps, space, space, gamma=0.97, gae_lambda=0.9, n_envs=each)
    buffer.rewards, buffer.values = reward[0].numpy(), value[0].numpy()
    buffer.episode_starts = np.concatenate([np.zeros((1, each)), ended[0, :-1].numpy()])

    buffer.compute_returns_and_advantage(last[0], ended[0, -1].numpy())
    found = advantages(reward, value, ended, last, gamma=torch.tensor([[0.97]]), share=torch.tensor([[0.9]]))

    assert np.allclose(found[0].numpy(), buffer.advantages, atol=1e-5)


def batch_of(chosen):
    return Batch(
        seen={"obs": drawn(MEMBERS, ROWS, 4, seed=1)},
        actions=chosen,
        weight=torch.full((MEMBERS, ROWS), 1 / ROWS),
        kept={
            "log_prob": -1.2 + 0.3 * drawn(MEMBERS, ROWS, seed=2),
            "advantage": drawn(MEMBERS, ROWS, seed=3),
            "returns": drawn(MEMBERS, ROWS, seed=4),
        },
    )


def as_in_stable_baselines3(distribution, worth, batch, member, knobs):
    """The loss of its `PPO.train`, line by line."""
    gain = batch.kept["advantage"][member]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    chosen = batch.actions[member]
    log_prob = distribution.log_prob(
        chosen[:, 0] if isinstance(distribution, CategoricalDistribution) else chosen
    )
    ratio = torch.exp(log_prob - batch.kept["log_prob"][member])
    clipped = torch.clamp(ratio, 1 - knobs["clip"], 1 + knobs["clip"])
    policy_loss = -torch.min(gain * ratio, gain * clipped).mean()
    value_loss = functional.mse_loss(batch.kept["returns"][member], worth)
    entropy_loss = -torch.mean(distribution.entropy())
    return policy_loss + knobs["ent"] * entropy_loss + knobs["vf"] * value_loss


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("does", [Choice(sizes=(3,), starts=(0,), single=True), floats(2)])
def test_the_gradient_is_that_of_stable_baselines3(does, share):
    knobs = {
        "clip_coef": 0.1,
        "ent_coef": 0.03,
        "vf_coef": 0.7,
        "max_grad_norm": 1e9,
        "share_encoders": share,
    }
    discrete = isinstance(does, Choice)
    group = crew_of("PPO", MEMBERS, does=does, algorithm=knobs).groups[0]
    chosen = torch.arange(MEMBERS * ROWS).reshape(MEMBERS, ROWS, 1) % 3
    batch = batch_of(chosen if discrete else drawn(MEMBERS, ROWS, 2, seed=6))
    out, worth = ppo.both(group, batch.seen)
    log_std = group.nets["actor"].params.get("log_std")
    total = torch.zeros(())
    for member in range(MEMBERS):
        made = (
            CategoricalDistribution(3).proba_distribution(out[member])
            if discrete
            else DiagGaussianDistribution(2).proba_distribution(out[member], log_std[member])
        )
        total = total + as_in_stable_baselines3(
            made, worth[member], batch, member, {"clip": 0.1, "ent": 0.03, "vf": 0.7}
        )
    leaves = [p for stack in group.nets.values() for p in stack.params.values()]
    wanted = torch.autograd.grad(total, leaves)

    ppo.update(group, batch)

    found = [g for stack in group.nets.values() for g in stack._grad_views]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted, strict=True))


def test_sampled_actions_have_the_policys_frequencies():
    does = Choice(sizes=(3, 2), starts=(0, 0), single=False)
    out = torch.tensor([1.0, 0.0, -1.0, 0.3, -0.3]).expand(1, 20_000, 5)
    dice = Dice([np.random.default_rng(0)], 20_000, explored=0)

    chosen = actions.sample(does, out, None, {}, dice)

    for part, scores in enumerate(out[0, 0].split([3, 2])):
        seen = torch.bincount(chosen[0, :, part], minlength=len(scores)) / 20_000
        assert torch.allclose(seen, scores.softmax(-1), atol=0.015)


def test_float_actions_have_the_policys_mean_and_deviation():
    dice = Dice([np.random.default_rng(0)], 20_000, explored=0)
    out = torch.tensor([0.5, -2.0]).expand(1, 20_000, 2)

    chosen = actions.sample(floats(2), out, torch.tensor([[0.0, -1.0]]), {}, dice)[0]

    assert torch.allclose(chosen.mean(0), torch.tensor([0.5, -2.0]), atol=0.03)
    assert torch.allclose(chosen.std(0), torch.tensor([0.0, -1.0]).exp(), atol=0.03)
