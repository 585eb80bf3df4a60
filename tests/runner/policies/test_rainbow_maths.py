"""Rainbow's parts against closed forms: projection, noise, what lies several steps ahead, and who is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from playground import crew_of, drawn, job_of, play
from safetensors.torch import load_file

from arena_runner import checkpoint
from arena_runner.algorithms import rainbow_dqn
from arena_runner.policies import layers
from arena_runner.policies.port import Batch, Dice
from arena_runner.rollouts.priorities import Priorities
from arena_runner.rollouts.replay import Replay

MEMBERS, ROWS, ATOMS = 2, 5, 11
KNOBS = {"num_atoms": ATOMS, "v_min": -2.0, "v_max": 3.0}


def group_of(**knobs):
    group = crew_of("Rainbow DQN", MEMBERS, algorithm={**KNOBS, **knobs}).groups[0]
    with torch.no_grad():
        group.nets["target"].flat.add_(0.1 * drawn(*group.nets["target"].flat.shape, seed=5))
    return group


def batch_of(group, *, noise=True):
    width = rainbow_dqn.shakes(group)
    return Batch(
        seen={"obs": drawn(MEMBERS, ROWS, 4, seed=1)},
        after={"obs": drawn(MEMBERS, ROWS, 4, seed=2)},
        actions=torch.arange(MEMBERS * ROWS).reshape(MEMBERS, ROWS, 1) % 3,
        reward=drawn(MEMBERS, ROWS, seed=3),
        over=(torch.arange(MEMBERS * ROWS).reshape(MEMBERS, ROWS) % 4 == 0).float(),
        discount=torch.tensor([[0.9], [0.5]]),
        weight=torch.full((MEMBERS, ROWS), 1 / ROWS),
        kept={"importance": drawn(MEMBERS, ROWS, seed=4).abs()},
        shake=drawn(MEMBERS, 1, width, seed=6) if noise and width else None,
    )


def by_the_paper(chance, reached, low, high):
    """Algorithm 1 of arXiv 1707.06887, atom by atom."""
    found, width = torch.zeros(ATOMS), (high - low) / (ATOMS - 1)
    for share, value in zip(chance, reached, strict=True):
        at = (min(max(value.item(), low), high) - low) / width
        below, above = int(np.floor(at)), int(np.ceil(at))
        if below == above:
            found[below] += share
        else:
            found[below] += share * (above - at)
            found[above] += share * (at - below)
    return found


def test_targets_are_the_papers():
    group = group_of()
    batch = batch_of(group)
    _, chooser, judge = batch.shake.chunk(3, dim=-1)

    found = rainbow_dqn.targets(group, batch, chooser, judge)

    atoms = rainbow_dqn.returns(group)
    chosen = rainbow_dqn.chances(group, group.nets["q"], batch.after, chooser).exp()
    judged = rainbow_dqn.chances(group, group.nets["target"], batch.after, judge).exp()
    for member in range(MEMBERS):
        for row in range(ROWS):
            best = (chosen[member, row] * atoms).sum(-1).argmax()
            goes_on = batch.discount[member, 0] * (1 - batch.over[member, row])
            reached = batch.reward[member, row] + goes_on * atoms
            wanted = by_the_paper(judged[member, row, best], reached, -2.0, 3.0)
            assert torch.allclose(found[member, row], wanted, atol=1e-5)


def test_projecting_keeps_all_chances_and_the_mean_of_what_lies_within():
    atoms = torch.linspace(-2, 3, ATOMS)
    chance = drawn(4, ATOMS, seed=1).softmax(-1)
    reached = 0.5 + 0.6 * atoms.expand(4, -1) * torch.tensor([[0.1], [0.5], [0.9], [1.0]])

    found = rainbow_dqn.projected(chance, reached, atoms)

    assert torch.allclose(found.sum(-1), torch.ones(4), atol=1e-6)
    assert torch.allclose((found * atoms).sum(-1), (chance * reached).sum(-1), atol=1e-5)


def test_the_loss_is_the_cross_entropy_of_the_action_taken_weighed_by_importance():
    group, alone = group_of(), group_of()
    batch = batch_of(group)
    now, chooser, judge = batch.shake.chunk(3, dim=-1)
    wanted = rainbow_dqn.targets(alone, batch, chooser, judge)
    logs = rainbow_dqn.chances(alone, alone.nets["q"], batch.seen, now)
    taken = logs[torch.arange(MEMBERS)[:, None], torch.arange(ROWS), batch.actions[..., 0]]
    loss = (-(wanted * taken).sum(-1) * batch.kept["importance"]).mean(-1)
    alone.nets["q"].minimise(loss.sum(), alone.of("lr"))
    alone.nets["target"].follow(alone.nets["q"], alone.of("tau"))

    figures = rainbow_dqn.update(group, batch)

    assert all(torch.allclose(group.nets[r].flat, alone.nets[r].flat, atol=1e-6) for r in ("q", "target"))
    divergence = (wanted * (wanted.clamp_min(1e-12).log() - taken.detach())).sum(-1)
    assert torch.allclose(figures["priority"], divergence + 1e-6, atol=1e-5)


def test_one_step_is_learned_beside_many_where_rewards_are_combined():
    group = group_of()
    batch = batch_of(group)
    near = replace(batch, reward=batch.reward + 1)
    apart = [rainbow_dqn.update(group_of(), one)["priority"] for one in (batch, replace(near, near=None))]

    both = rainbow_dqn.update(group, replace(batch, near=near))["priority"]

    assert torch.allclose(both, apart[0] + apart[1], atol=1e-5)


def test_a_noisy_layer_is_one_whose_weights_are_shaken():
    """W = mean + deviation * f(a) f(b)ᵀ, b = mean + deviation * f(b), f(x) = sign(x) sqrt|x|."""
    stack = group_of().nets["q"]
    p, design = stack.params, stack.design
    latent, noise = drawn(MEMBERS, ROWS, 16, seed=1), drawn(MEMBERS, 1, layers.noise_width(design, 0), seed=2)

    found = stack.head(latent, 0, noise)

    for member in range(MEMBERS):
        x, rest = latent[member], noise[member, 0]
        for name, width in (("value.0", 16), ("value.out", ATOMS)):
            a, b, rest = rest.split([x.shape[-1], width, len(rest) - x.shape[-1] - width])
            a, b = (v.sign() * v.abs().sqrt() for v in (a, b))
            weight = p[f"{name}.weight"][member] + p[f"{name}.noise_weight"][member] * torch.outer(a, b)
            x = x @ weight + p[f"{name}.bias"][member] + p[f"{name}.noise_bias"][member] * b
            if name != "value.out":
                x = torch.nn.functional.layer_norm(x, (width,)).relu()
        assert torch.allclose(found[member], x, atol=1e-5)
    assert torch.allclose(p["value.0.noise_weight"], torch.tensor(0.5 / 16**0.5))


def test_exploring_is_noise_and_judging_has_none():
    group = group_of(noise_std=4.0)
    seen = {"obs": drawn(MEMBERS, 1, 4).expand(-1, 64, -1)}
    dice = Dice([np.random.default_rng(n) for n in range(MEMBERS)], 64, explored=0)

    assert len(rainbow_dqn.explore(group, seen, dice, {}).actions.unique()) > 1
    assert len(rainbow_dqn.greedy(group, seen, {}).actions[0].unique()) == 1


@pytest.mark.parametrize("rings", [1, 2])
def test_what_lies_ahead_is_the_sum_of_a_walk(rings):
    places, each, capacity, steps = 2, 3, 50, 4
    rng, replay = np.random.default_rng(0), Replay(rings, capacity)
    stride = places * each if rings == 1 else each
    told = {}
    for tick in range(30):
        reward = rng.normal(size=(places, each)).astype(np.float32)
        ended = rng.random((places, each)) < 0.2
        seen = np.arange(places * each).reshape(places, each) + 100.0 * tick
        told[tick] = (reward, ended)
        columns = {"after/obs": seen + 100, "reward": reward, "ended": ended.astype(np.float32)}
        replay.add(
            {n: torch.from_numpy(v) for n, v in {**columns, "over": columns["ended"], "tick": seen}.items()}
        )
    gamma = torch.tensor([[0.9], [0.5]])
    rows = torch.arange(capacity - 1).expand(2, -1)

    found = replay.ahead(torch.arange(places), rows, steps=steps, stride=stride, gamma=gamma)

    ticks = replay.take(torch.arange(places), rows)["tick"]
    for place in range(places):
        for row in range(capacity - 1):
            tick, env = divmod(int(ticks[place, row]), 100)
            reward, power = 0.0, 1.0
            for now in range(tick, min(tick + steps, 30)):
                reward += power * told[now][0].flat[env]
                power *= float(gamma[place])
                if told[now][1].flat[env]:
                    break
            assert found["reward"][place, row].item() == pytest.approx(reward, abs=1e-5)
            assert found["discount"][place, row].item() == pytest.approx(power, abs=1e-6)
            assert found["after/obs"][place, row] == env + 100 * (now + 1)


def test_a_tree_of_sums_draws_what_a_plain_sum_would():
    tree, rng = Priorities(2, 3000, alpha=0.5), np.random.default_rng(1)
    for _ in range(30):
        rows = rng.integers(0, 3000, 64)
        tree.put(1, rows, rng.random(64) * 9)
    points = rng.random(500)

    rows, chance = tree.draw(1, points)

    leaves = tree.state()["leaves"][1].double().numpy()
    reached = leaves.cumsum()
    wanted = np.searchsorted(reached, points * reached[-1], side="right")
    assert (rows == wanted).all()
    assert np.allclose(chance, leaves[rows] / reached[-1])
    assert tree.total[0] == 0.0


def test_a_tree_is_its_leaves_and_nothing_else():
    """Sums do not drift: after many changes, and out of a saved state, they are those of the leaves, bit for bit."""
    tree, rng = Priorities(1, 5000, alpha=0.7), np.random.default_rng(2)
    tree.begin(np.arange(5000))
    for _ in range(200):
        tree.put(0, rng.integers(0, 5000, 32), rng.random(32) * 10.0 ** rng.integers(-6, 6))
    again = Priorities(1, 5000, alpha=0.7)

    again.restore(tree.state())

    points = rng.random(1000)
    ours, theirs = tree.draw(0, points), again.draw(0, points)
    assert (ours[0] == theirs[0]).all()
    assert (ours[1] == theirs[1]).all()
    assert (tree.draw(0, np.array([0.0, 1 - 1e-16]))[1] > 0).all()


def test_new_rows_are_as_likely_as_the_likeliest_and_a_copy_knows_what_its_parent_knew():
    tree = Priorities(2, 40, alpha=1.0)
    tree.begin(np.arange(4))
    tree.put(0, np.array([1]), np.array([8.0]))
    tree.begin(np.arange(4, 6))
    tree.copy(0, 1)

    assert tree.state()["leaves"][:, :6].tolist() == [[1, 8, 1, 1, 8, 8]] * 2


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("algorithm", {"n_step": 1}),
        ("algorithm", {"combined_reward": True}),
        ("algorithm", {"beta": 1.0}),
        ("algorithm", {"prior_eps": 1.0}),
        ("algorithm", {"noise_std": 0.1}),
        ("algorithm", {"v_max": 30.0}),
        ("algorithm", {"v_min": -30.0}),
        ("replay_buffer", {"per_buffer_args": {"alpha": 0.0}}),
    ],
)
def test_every_knob_has_an_effect(tmp_path, section, values):
    quiet = {"training": {"hpo": False, "max_steps": 80, "test_episodes": 0, "pop_size": 1}}
    states = []
    for number, sections in enumerate((quiet, {**quiet, section: values})):
        play(job_of("Rainbow DQN", **sections), tmp_path / str(number))
        folder = checkpoint.state_folders(tmp_path / str(number) / "states")[-1]
        states.append(load_file(folder / checkpoint.ADAPTERS))

    assert not torch.equal(states[0]["m0/q"], states[1]["m0/q"])
