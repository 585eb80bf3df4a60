"""DQN's update against its closed form, member by member, with everything that may differ between members."""

from __future__ import annotations

import pytest
import torch
from playground import crew_of, drawn

from arena_runner.algorithms import dqn
from arena_runner.policies.group import Group
from arena_runner.policies.port import MASK, Batch, Dice

MEMBERS, ROWS = 3, 6


def batch_of(sizes=(6, 6, 6), mask=None):
    weight = torch.tensor([[1 / size] * size + [0.0] * (ROWS - size) for size in sizes])
    beside = {} if mask is None else {MASK: mask}
    return Batch(
        seen={"obs": drawn(MEMBERS, ROWS, 4, seed=1), **beside},
        after={"obs": drawn(MEMBERS, ROWS, 4, seed=2), **beside},
        actions=torch.arange(MEMBERS * ROWS).reshape(MEMBERS, ROWS, 1) % 3,
        reward=drawn(MEMBERS, ROWS, seed=3),
        over=(torch.arange(MEMBERS * ROWS).reshape(MEMBERS, ROWS) % 4 == 0).float(),
        discount=torch.tensor([[0.9], [0.99], [0.5]]),
        weight=weight,
    )


def group_of(**knobs) -> Group:
    group = crew_of("DQN", MEMBERS, algorithm=knobs).groups[0]
    with torch.no_grad():
        group.nets["target"].flat.add_(0.1 * drawn(*group.nets["target"].flat.shape, seed=5))
    return group


@pytest.mark.parametrize("double", [False, True])
def test_the_target_is_bellmans(double):
    group, batch = group_of(double=double), batch_of()
    q, target = group.nets["q"], group.nets["target"]

    found = dqn.targets(group, batch)

    for member in range(MEMBERS):
        for row in range(ROWS):
            after = {"obs": batch.after["obs"]}
            judged, chosen = (dqn.worth(net, after)[member, row] for net in (target, q))
            value = judged[chosen.argmax()] if double else judged.max()
            wanted = batch.reward[member, row] + batch.discount[member, 0] * value * (
                1 - batch.over[member, row]
            )
            assert found[member, row].item() == pytest.approx(wanted.item(), abs=1e-6)


def test_a_member_learns_from_its_own_rows_at_its_own_rate():
    rates = torch.tensor([1e-3, 1e-2, 0.0])
    together, batch = group_of(), batch_of(sizes=(6, 3, 6))
    together.own = {**together.own, "lr": rates}
    dqn.update(together, batch)

    for member, size in enumerate((6, 3, 6)):
        alone = group_of().subset([member])
        alone.own = {**alone.own, "lr": rates[member : member + 1]}
        cut = Batch(
            seen={"obs": batch.seen["obs"][member : member + 1, :size]},
            after={"obs": batch.after["obs"][member : member + 1, :size]},
            actions=batch.actions[member : member + 1, :size],
            reward=batch.reward[member : member + 1, :size],
            over=batch.over[member : member + 1, :size],
            discount=batch.discount[member : member + 1],
            weight=torch.full((1, size), 1 / size),
        )
        dqn.update(alone, cut)
        for role in ("q", "target"):
            assert torch.allclose(together.nets[role].flat[member], alone.nets[role].flat[0], atol=1e-6)


def test_a_rate_of_zero_moves_nothing_but_the_target():
    group = group_of()
    group.own = {**group.own, "lr": torch.zeros(MEMBERS)}
    before = group.nets["q"].flat.clone()

    dqn.update(group, batch_of())

    assert torch.equal(group.nets["q"].flat, before)


def test_the_target_follows_by_tau():
    group = group_of()
    group.own = {**group.own, "tau": torch.tensor([0.0, 0.5, 1.0])}
    before = group.nets["target"].flat.clone()

    dqn.update(group, batch_of())

    now = group.nets["q"].flat
    wanted = torch.stack([before[0], (before[1] + now[1]) / 2, now[2]])
    assert torch.allclose(group.nets["target"].flat, wanted, atol=1e-6)


def test_dueling_centres_the_advantages():
    stack = crew_of("DQN", 2, algorithm={"dueling": True}).groups[0].nets["q"]
    seen = {"obs": drawn(2, 4, 4)}

    value = stack.head(stack.latent(seen), 0).squeeze(-1)

    assert torch.allclose(dqn.worth(stack, seen).mean(-1), value, atol=1e-6)


def test_what_is_not_allowed_is_never_done_nor_counted_on():
    import numpy as np

    group = group_of(double=False)
    mask = torch.tensor([0.0, 1.0, 0.0]).expand(MEMBERS, ROWS, 3).clone()
    batch = batch_of(mask=mask)
    dice = Dice([np.random.default_rng(n) for n in range(MEMBERS)], ROWS, explored=0)

    assert (dqn.explore(group, batch.seen, dice, {}).actions == 1).all()
    assert (dqn.greedy(group, batch.seen, {}).actions == 1).all()
    after = dqn.worth(group.nets["target"], {"obs": batch.after["obs"]})[..., 1]
    wanted = batch.reward + batch.discount * (1 - batch.over) * after
    assert torch.allclose(dqn.targets(group, batch), wanted, atol=1e-6)


def test_exploration_is_a_function_of_how_far_the_run_is():
    group = group_of()
    shares = [dqn.epsilon(group, explored) for explored in (0, 1, 10_000)]

    assert shares == [1.0, 0.995, 0.1]
