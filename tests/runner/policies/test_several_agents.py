"""IPPO and MADDPG: one agent is PPO and DDPG bit for bit, several are apart where they should be, and their worlds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from meeting import STEPS, Meeting
from playground import choices, crew_of, crowd_of, drawn, floats, manifest_of, met

from arena_runner.algorithms import ddpg, ippo, maddpg, ppo
from arena_runner.policies.crowd import of_agent
from arena_runner.policies.design import DesignError, plan
from arena_runner.policies.port import Batch, Dice
from arena_runner.policies.spaces import Crowd, Image, SpaceError, Spaces
from arena_runner.rollouts.collected import advantages
from arena_runner.rollouts.together import Together, open_parallel
from arena_runner.rollouts.worlds import WorldError, seeds

MEMBERS, ROWS = 2, 6
MIXED = {"walker": (2, choices(3)), "glider": (3, floats(2, -0.5, 1.5))}


def dice():
    return Dice([np.random.default_rng(n) for n in range(MEMBERS)], ROWS, explored=0)


def same_weights(source, target, agent):
    """Give an agent of a crowd the networks of a lone one."""
    for role, stack in source.nets.items():
        with torch.no_grad():
            target.nets[f"{agent}/{role}"].flat.copy_(stack.flat)


def rollout(width, sees, seed):
    return {
        "seen": drawn(MEMBERS, ROWS, sees, seed=seed),
        "actions": drawn(MEMBERS, ROWS, width, seed=seed + 1),
        "log_prob": drawn(MEMBERS, ROWS, seed=seed + 2) - 2,
        "advantage": drawn(MEMBERS, ROWS, seed=seed + 3),
        "returns": drawn(MEMBERS, ROWS, seed=seed + 4),
    }


def alone_batch(rows):
    return Batch(
        seen={"obs": rows["seen"]},
        actions=rows["actions"],
        weight=torch.full((MEMBERS, ROWS), 1 / ROWS),
        kept={name: rows[name] for name in ippo.KEPT},
    )


@pytest.mark.parametrize("shared", [True, False])
def test_ippo_with_one_agent_is_ppo(shared):
    knobs = {"share_encoders": shared, "lr": 1e-2}
    alone = crew_of("PPO", MEMBERS, sees=3, does=floats(2), algorithm=knobs).groups[0]
    crowd = crowd_of("IPPO", MEMBERS, {"a": (3, floats(2))}, algorithm=knobs).groups[0]
    same_weights(alone, crowd, "a")
    rows = rollout(2, 3, seed=1)
    batch = alone_batch(rows)
    kept = {name: rows[name].unsqueeze(-1) for name in ippo.KEPT}
    many = Batch(seen={"a/obs": rows["seen"]}, actions=rows["actions"], weight=batch.weight, kept=kept)
    one, other = ppo.explore(alone, batch.seen, dice(), {}), ippo.explore(crowd, many.seen, dice(), {})

    figures, told = ppo.update(alone, batch), ippo.update(crowd, many)

    assert torch.equal(one.actions, other.actions)
    assert torch.equal(one.kept["log_prob"], other.kept["log_prob"][..., 0])
    assert torch.equal(ppo.value(alone, batch.seen, {}), ippo.value(crowd, many.seen, {})[..., 0])
    assert all(torch.equal(figures[name], told[name]) for name in figures)
    for role, stack in alone.nets.items():
        assert torch.equal(stack.flat, crowd.nets[f"a/{role}"].flat)


def test_agents_of_ippo_learn_apart():
    crowd, again = (crowd_of("IPPO", MEMBERS, MIXED).groups[0] for _ in range(2))
    rows = {"walker": rollout(1, 2, seed=1), "glider": rollout(2, 3, seed=9)}
    rows["walker"]["actions"] = torch.randint(0, 3, (MEMBERS, ROWS, 1))
    for name, mine in rows.items():
        ppo.update(again.agent(name), alone_batch(mine))

    ippo.update(
        crowd,
        Batch(
            seen={f"{name}/obs": one["seen"] for name, one in rows.items()},
            actions=torch.cat([rows[name]["actions"].float() for name in MIXED], -1),
            weight=torch.full((MEMBERS, ROWS), 1 / ROWS),
            kept={n: torch.stack([rows[name][n] for name in MIXED], -1) for n in ippo.KEPT},
        ),
    )

    assert all(torch.equal(net.flat, again.nets[role].flat) for role, net in crowd.nets.items())


def replayed(agents, seed=1):
    actions = [
        torch.randint(0, does.width, (MEMBERS, ROWS, 1)).float()
        if does.kind == "choice"
        else drawn(MEMBERS, ROWS, does.width, seed=seed + n).clamp(-0.4, 0.9)
        for n, (_, does) in enumerate(agents.values())
    ]
    return Batch(
        seen={f"{name}/obs": drawn(MEMBERS, ROWS, s, seed=seed + 20) for name, (s, _) in agents.items()},
        after={f"{name}/obs": drawn(MEMBERS, ROWS, s, seed=seed + 30) for name, (s, _) in agents.items()},
        actions=torch.cat(actions, -1),
        reward=drawn(MEMBERS, ROWS, len(agents), seed=seed + 40),
        over=(drawn(MEMBERS, ROWS, len(agents), seed=seed + 50) > 1).float(),
        discount=torch.tensor([[0.9], [0.5]]),
        weight=torch.full((MEMBERS, ROWS), 1 / ROWS),
        noise=drawn(MEMBERS, ROWS, 9, seed=seed + 60),
    )


def moved(crew):
    group = crew.groups[0]
    with torch.no_grad():
        for role, net in group.nets.items():
            if role.endswith("_target"):
                net.flat.add_(0.1 * drawn(*net.flat.shape, seed=7))
    return group


def test_maddpg_with_one_agent_is_ddpg():
    agents = {"a": (3, floats(2, -0.5, 1.5))}
    rates = {"lr_actor": 1e-2, "lr_critic": 1e-2}
    alone = moved(
        crew_of("DDPG", MEMBERS, sees=3, does=agents["a"][1], algorithm={**rates, "policy_freq": 1})
    )
    crowd = crowd_of("MADDPG", MEMBERS, agents, algorithm={**rates, "tau": 1e-3}).groups[0]
    same_weights(alone, crowd, "a")
    many = replayed(agents)
    one = ddpg.explore(alone, {"obs": many.seen["a/obs"]}, dice(), {})
    other = maddpg.explore(crowd, many.seen, dice(), {})

    figures, told = ddpg.update(alone, of_agent(crowd.crowd, many, "a")), maddpg.update(crowd, many)

    assert torch.equal(one.actions, other.actions)
    assert torch.equal(one.memory["noise"], other.memory["a/noise"])
    assert all(torch.equal(figures[name], told[name]) for name in figures)
    assert all(torch.equal(net.flat, crowd.nets[f"a/{role}"].flat) for role, net in alone.nets.items())


def test_a_critic_of_maddpg_is_bellmans_over_everything():
    crowd, before = (moved(crowd_of("MADDPG", MEMBERS, MIXED)) for _ in range(2))
    batch = replayed(MIXED)
    ahead, beside = [], []
    for name, (_, does) in MIXED.items():
        out = before.nets[f"{name}/actor_target"]({"obs": batch.after[f"{name}/obs"]})
        choice = does.kind == "choice"
        ahead.append(torch.eye(3)[out.argmax(-1)] if choice else out.tanh())
        mine = batch.actions[..., :1] if choice else batch.actions[..., 1:]
        beside.append(torch.eye(3)[mine[..., 0].long()] if choice else mine - 0.5)
    for number, name in enumerate(MIXED):
        critic, target = (before.nets[f"{name}/{role}"] for role in ("critic", "critic_target"))
        after = target(batch.after, torch.cat(ahead, -1).detach())[..., 0].detach()
        wanted = batch.reward[..., number] + batch.discount * (1 - batch.over[..., number]) * after
        loss = (critic(batch.seen, torch.cat(beside, -1))[..., 0] - wanted).square().mean(-1)
        critic.minimise(loss.sum(), before.of("lr_critic"))

    maddpg.update(crowd, batch)

    for name in MIXED:
        assert torch.allclose(
            crowd.nets[f"{name}/critic"].flat, before.nets[f"{name}/critic"].flat, atol=1e-6
        )
        assert not torch.equal(crowd.nets[f"{name}/actor"].flat, before.nets[f"{name}/actor"].flat)


def test_a_draw_is_one_hot_and_its_gradient_that_of_the_softmax():
    does, count = choices(3), 20_000
    scores = torch.tensor([0.0, 1.0, -1.0]).requires_grad_()
    noise = -(-torch.rand(count, 3, generator=torch.Generator().manual_seed(1)).log()).log()
    weight = drawn(3, seed=2)

    found = maddpg.drawn(does, scores.expand(count, 3), noise)

    (gradient,) = torch.autograd.grad((found * weight).sum(), scores)
    (wanted,) = torch.autograd.grad(((scores + noise).softmax(-1) * weight).sum(), scores)
    assert torch.allclose(gradient / count, wanted / count, atol=1e-5)
    assert ((found == 0) | (found == 1)).all()
    assert torch.allclose(found.mean(0), scores.softmax(-1), atol=0.015)


def test_advantages_of_agents_are_those_of_each():
    reward, value = drawn(2, 5, 3, 2, seed=1), drawn(2, 5, 3, 2, seed=2)
    ended, last = (drawn(2, 5, 3, seed=3) > 0.5).float(), drawn(2, 3, 2, seed=4)
    columns = {"gamma": torch.tensor([0.9, 0.5]), "share": torch.tensor([0.95, 0.8])}

    found = advantages(reward, value, ended, last, **columns)

    for agent in range(2):
        alone = advantages(reward[..., agent], value[..., agent], ended, last[..., agent], **columns)
        assert torch.equal(found[..., agent], alone)


def test_floats_without_ends_and_images_for_a_common_critic_are_refused():
    with pytest.raises(SpaceError, match="finite bounds"):
        crowd_of("MADDPG", 1, {"a": (2, floats(1, -1e30, 1e30)), "b": (2, choices(2))})
    picture = {"obs": Image(channels=3, height=16, width=16, last=True, scaled=True)}
    crowd = Crowd(agents={"a": Spaces(sees=picture, does=choices(2))})
    with pytest.raises(DesignError, match="images of several agents"):
        maddpg.networks({"a": plan(None, picture)}, crowd, manifest_of("MADDPG").algorithm)


def test_a_world_of_agents_pays_each_and_goes_on_after_an_end():
    world = Together(Meeting, 3)
    world.reset(seeds(1, 3, "episode"))

    told = met(world, STEPS)

    assert told[0].reward.shape == (3, 2)
    assert told[0].paid == pytest.approx(told[0].reward.sum(1))
    assert [one.ended.tolist() for one in told[-2:]] == [[False] * 3, [True] * 3]
    assert set(told[-1].seen) == {"walker/obs", "glider/obs"}
    assert (told[-1].seen["walker/obs"] == told[-1].seen["glider/obs"][:, ::-1]).all()
    assert not (told[-1].seen["walker/obs"] == told[-1].after["walker/obs"]).any()


def test_a_world_of_agents_goes_on_from_a_saved_state():
    ours, theirs = Together(Meeting, 2), Together(Meeting, 2)
    ours.reset(seeds(1, 2, "episode"))
    met(ours, 17)

    seen = theirs.restore(ours.state(), seeds(1, 2, "episode"))

    assert all((seen[name] == one).all() for name, one in ours._stacked(ours._now).items())
    for one, other in zip(met(ours, 15, 17), met(theirs, 15, 17), strict=True):
        assert (one.reward == other.reward).all()
        assert all((one.seen[name] == other.seen[name]).all() for name in one.seen)


def test_an_evaluation_can_be_cut_short():
    world = Together(Meeting, 1, longest=5)
    world.reset(seeds(1, 1, "episode"))

    assert [one.ended.item() for one in met(world, 5)] == [False] * 4 + [True]


def test_agents_that_are_judged_rest_after_their_episode():
    world = Together(Meeting, 2, longest=5, once=True)
    world.reset(seeds(1, 2, "episode"))

    told = met(world, 7)

    assert [one.ended.all().item() for one in told] == [False] * 4 + [True] + [False] * 2
    assert told[4].paid.all()
    assert not told[5].paid.any()


def test_an_agent_that_leaves_before_the_others_is_refused_by_name():
    world = Together(lambda: Meeting(leaves=3), 1)
    world.reset(seeds(1, 1, "episode"))

    with pytest.raises(WorldError, match="walker left before the other agents"):
        met(world, 3)


@pytest.mark.parametrize("name", ["os.path", "mpe2.nothing_v0", "CartPole-v1"])
def test_only_an_environments_module_is_imported(name):
    with pytest.raises(WorldError):
        open_parallel(name, 1, {})
