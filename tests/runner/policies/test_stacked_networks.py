"""N stacked networks are N networks: forward, gradient, Adam, clip, subsets."""

from __future__ import annotations

import pytest
import torch
from playground import crew_of, drawn
from torch import nn

from arena_runner.policies.stack import views


def plain(stack, row):
    """One member as ordinary torch modules."""
    values = {name: view[0] for name, view in views(stack.slots, stack.flat[row : row + 1]).items()}
    layers = []
    for name in ("encoder.0", "encoder.latent", "q.0", "q.out"):
        layer = nn.Linear(*values[f"{name}.weight"].shape)
        layer.weight.data = values[f"{name}.weight"].T.clone()
        layer.bias.data = values[f"{name}.bias"].clone()
        layers.append(layer)
        if name != "q.out":
            layers += [nn.LayerNorm(layer.out_features), nn.ReLU()]
    return nn.Sequential(*layers)


def flat_of(module):
    return torch.cat([p.detach().mT.flatten() if p.dim() == 2 else p.detach() for p in module.parameters()])


def test_a_stack_sees_what_each_network_alone_would():
    stack = crew_of("DQN", 3).groups[0].nets["q"]
    seen = drawn(3, 5, 4)

    alone = torch.stack([plain(stack, row)(seen[row]) for row in range(3)])

    assert torch.allclose(stack({"obs": seen}), alone, atol=1e-6)


def test_networks_differ_by_member_and_not_by_time():
    first, second = (crew_of("DQN", 2).groups[0].nets["q"].flat for _ in range(2))

    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("clip", [None, (0.01, 10.0, 0.5)])
def test_members_together_are_members_alone_under_adam(clip):
    stack = crew_of("DQN", 3).groups[0].nets["q"]
    alone = [plain(stack, row) for row in range(3)]
    rates = (1e-3, 3e-2, 1e-4)
    optimizers = [
        torch.optim.Adam(module.parameters(), lr=lr) for module, lr in zip(alone, rates, strict=True)
    ]
    for step in range(4):
        seen, wanted = drawn(3, 8, 4, seed=step), drawn(3, 8, 3, seed=step + 9)
        loss = (stack({"obs": seen}) - wanted).square().mean((1, 2)).sum()
        stack.minimise(loss, torch.tensor(rates), None if clip is None else torch.tensor(clip))
        for row, (module, optimizer) in enumerate(zip(alone, optimizers, strict=True)):
            optimizer.zero_grad()
            (module(seen[row]) - wanted[row]).square().mean().backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), clip[row])
            optimizer.step()

    assert torch.allclose(stack.flat, torch.stack([flat_of(module) for module in alone]), atol=2e-6)


def test_who_is_not_in_a_subset_keeps_every_bit():
    group = crew_of("DQN", 3).groups[0]
    stack = group.nets["q"]
    before = stack.flat.clone()

    part = group.subset([2])
    part.nets["q"].minimise(part.nets["q"]({"obs": drawn(1, 4, 4)}).square().sum(), torch.tensor([0.1]))
    group.take_back(part, [2])

    assert torch.equal(stack.flat[:2], before[:2])
    assert not torch.equal(stack.flat[2], before[2])
    assert stack.steps.flatten().tolist() == [0, 0, 1]


def test_a_member_that_leaves_the_stack_and_returns_is_the_same():
    crew = crew_of("DQN", 3)
    stack = crew.groups[0].nets["q"]
    stack.minimise(stack({"obs": drawn(3, 4, 4)}).square().sum(), torch.tensor([0.1, 0.2, 0.3]))
    before = crew.state()

    crew.restore(*before)

    for kept, now in zip(before, crew.state(), strict=True):
        assert kept.keys() == now.keys()
        assert all(torch.equal(kept[name], now[name]) for name in kept)


def test_a_copy_has_weights_moments_and_step_count_of_its_parent():
    crew = crew_of("DQN", 3)
    stack = crew.groups[0].nets["q"]
    stack.minimise(stack({"obs": drawn(3, 4, 4)}).square().sum(), torch.tensor([0.1, 0.2, 0.3]))

    crew.copy(2, 0)

    after = crew.groups[0].nets["q"]
    for name in ("flat", "mean", "square", "steps"):
        values = getattr(after, name)
        assert torch.equal(values[0], values[2])
    assert not torch.equal(after.flat[1], after.flat[2])
