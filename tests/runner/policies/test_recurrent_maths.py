"""Recurrent PPO: memory is torch's LSTM, sequences are what was played, and a task that needs memory is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from playground import crew_of, drawn
from torch import nn

from arena_runner.algorithms import recurrent_ppo
from arena_runner.policies.design import DesignError
from arena_runner.policies.port import Dice
from arena_runner.policies.spaces import Image
from arena_runner.rollouts.collected import cut_up, minibatch

NETWORK = {
    "network": {
        "latent_dim": 16,
        "encoder_config": {"hidden_state_size": 8, "num_layers": 2},
        "head_config": {"hidden_size": [16]},
    }
}


def group_of(members=2):
    return crew_of("Recurrent PPO", members, **NETWORK).groups[0]


def test_the_memory_is_that_of_torchs_lstm():
    group = group_of()
    stack = group.nets["actor"]
    seen = drawn(2, 5, 3, 4)  # members, steps, rows
    for member in range(2):
        lstm = nn.LSTM(4, 8, num_layers=2)
        for layer in range(2):
            at = f"encoder.{layer}."
            values = {n: stack.params[at + n][member].detach() for n in ("input", "hidden", "bias")}
            getattr(lstm, f"weight_ih_l{layer}").data = values["input"].T
            getattr(lstm, f"weight_hh_l{layer}").data = values["hidden"].T
            getattr(lstm, f"bias_ih_l{layer}").data = values["bias"]
            getattr(lstm, f"bias_hh_l{layer}").data.zero_()
        wanted, (hidden, cell) = lstm(seen[member])
        memory = {}
        for step in range(5):
            _, memory = recurrent_ppo.remembered(group, {"obs": seen[:, step]}, memory)
        assert torch.allclose(memory["hidden"][member, :, 1], wanted[-1], atol=1e-6)
        assert torch.allclose(memory["cell"][member].transpose(0, 1), cell, atol=1e-6)
        assert torch.allclose(memory["hidden"][member].transpose(0, 1), hidden, atol=1e-6)


PICTURE = Image(channels=3, height=10, width=8, last=True, scaled=True)
WATCHED = {
    "encoder_config": {
        "arch": "cnn_lstm",
        "channel_size": [8],
        "kernel_size": [3],
        "stride_size": [2],
        "hidden_state_size": 8,
    },
    "latent_dim": 16,
    "head_config": {"hidden_size": [16]},
}


@pytest.mark.parametrize("network", [WATCHED, {"latent_dim": 16, "encoder_config": {"hidden_state_size": 8}}])
def test_pictures_are_convolved_before_they_are_remembered(network):
    group = crew_of("Recurrent PPO", 2, sees={"obs": PICTURE}, network=network).groups[0]
    stack = group.nets["actor"]
    seen = torch.randint(0, 256, (2, 4, 3, 3, 10, 8), generator=torch.Generator().manual_seed(1)).byte()
    encoder = stack.design.encoder
    for member in range(2):
        values = {name: one[member].detach() for name, one in stack.params.items()}
        lstm = nn.LSTM(values["encoder.0.input"].shape[0], 8)
        lstm.weight_ih_l0.data, lstm.weight_hh_l0.data = (
            values["encoder.0.input"].T,
            values["encoder.0.hidden"].T,
        )
        lstm.bias_ih_l0.data = values["encoder.0.bias"]
        lstm.bias_hh_l0.data.zero_()
        x = seen[member].flatten(0, 1).float() / 255
        for n, stride in enumerate(encoder.stride_size):
            weight, bias = (values[f"encoder.picture.{n}.{kind}"] for kind in ("weight", "bias"))
            x = nn.functional.conv2d(x, weight, bias, stride=stride).relu()
        wanted, _ = lstm(x.flatten(1).unflatten(0, (4, 3)))
        memory = {}
        for step in range(4):
            _, memory = recurrent_ppo.remembered(group, {"obs": seen[:, step]}, memory)
        assert torch.allclose(memory["hidden"][member, :, 0], wanted[-1], atol=1e-6)


@pytest.mark.parametrize(
    ("which", "network"),
    [
        ("DQN", {**NETWORK["network"]}),
        ("Recurrent PPO", {"encoder_config": {"arch": "mlp", "hidden_size": [8]}}),
    ],
)
def test_memory_and_an_algorithm_that_learns_sequences_belong_together(which, network):
    with pytest.raises(DesignError, match=r"sequences|memory"):
        crew_of(which, 1, network={"head_config": {"hidden_size": [16]}, **network})


def played(group, steps, each):
    """A rollout with ends in it: columns (N, T, E, …), as the loop keeps them."""
    dice = Dice([np.random.default_rng(n) for n in range(len(group))], each, explored=0)
    memory, columns = {}, {}
    for step in range(steps):
        seen = drawn(len(group), each, 4, seed=step)
        acted = recurrent_ppo.explore(group, {"obs": seen}, dice, memory)
        ended = (drawn(len(group), each, seed=100 + step) > 1).float()
        memory = {n: v * (1 - ended)[..., None, None] for n, v in acted.memory.items()}
        row = {"seen/obs": seen, "actions": acted.actions, "ended": ended, **acted.kept}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    rows = {name: torch.stack(values, 1) for name, values in columns.items()}
    rows["advantage"], rows["returns"] = drawn(len(group), steps, each, seed=7), rows["value"] + 1
    rows["reward"] = rows["value"]
    return rows


def test_a_first_update_sees_the_probabilities_it_acted_with():
    """Whatever the sequences are: the memory they start from and the ends inside them are as they were played."""
    for sequence in (1, 3, 6):
        group = group_of()
        flat = {name: cut_up(value, sequence) for name, value in played(group, 6, 3).items()}
        count = flat["reward"].shape[1]
        batch = minibatch(flat, [0, 1], [torch.arange(count)] * 2)

        figures = recurrent_ppo.update(group, batch)

        assert figures["kl"].abs().max() < 1e-6
        assert figures["clip_fraction"].max() == 0
        assert torch.allclose(figures["value_loss"], torch.ones(2), atol=1e-4)


def test_cutting_up_keeps_the_order_of_steps():
    rows = torch.arange(2 * 6 * 3).reshape(2, 6, 3)

    pieces = cut_up(rows, 3)

    assert pieces.shape == (2, 6, 3)
    assert torch.equal(pieces[0, 0], rows[0, 0:3, 0])
    assert torch.equal(pieces[1, 5], rows[1, 3:6, 2])


def test_whole_sequences_learn_what_single_steps_cannot():
    """Gradients reach back through a sequence: its first step's input weights get some from the last step's loss."""
    group = group_of(1)
    flat = {name: cut_up(value, 6) for name, value in played(group, 6, 3).items()}
    for name in ("advantage", "returns"):
        flat[name] = flat[name].clone()
        flat[name][:, :, :-1] = flat["value"][:, :, :-1] if name == "returns" else 0.0
    seen = flat["seen/obs"].clone()
    seen[:, :, 1:] = 0  # only the first step sees anything
    batch = minibatch(
        {**flat, "seen/obs": seen, "ended": torch.zeros_like(flat["ended"])}, [0], [torch.arange(3)]
    )

    recurrent_ppo.update(group, batch)

    stack = group.nets["actor"]
    grads = dict(zip(stack.params, stack._grad_views, strict=True))
    assert grads["encoder.0.input"].abs().sum() > 0
