"""Observations and actions of every kind, from the environment's space to the network and back."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from playground import job_of, play

from arena_gitops.spec.job import RunState
from arena_gitops.spec.manifest.network import Cnn, DeferredNetwork, Lstm, Mlp, MultiInput, Simba
from arena_runner.policies import spaces
from arena_runner.policies.design import DesignError, plan, with_heads
from arena_runner.policies.port import MASK
from arena_runner.policies.stack import Stack
from arena_runner.rollouts.worlds import stacked

BYTES = gym.Box(0, 255, (12, 12, 3), np.uint8)
KINDS = {
    "vector": gym.Box(-1, 1, (5,)),
    "matrix": gym.Box(-1, 1, (2, 3)),
    "category": gym.Discrete(4, start=1),
    "categories": gym.MultiDiscrete([2, 3]),
    "bits": gym.MultiBinary(3),
    "image": BYTES,
    "image, channels first": gym.Box(0, 255, (3, 12, 12), np.uint8),
    "dict": gym.Dict({"near": gym.Box(-1, 1, (2,)), "eye": BYTES, "mode": gym.Discrete(3)}),
    "tuple": gym.Tuple([gym.Discrete(3), gym.Box(-1, 1, (2,))]),
    "nested": gym.Dict({"a": gym.Dict({"b": gym.Discrete(2)}), "c": gym.Box(-1, 1, (1,))}),
}


def seen_of(space, rows=3):
    """Stored parts of some samples, and the description they were stored by."""
    told = spaces.read(space, gym.Discrete(2))
    space.seed(1)
    return told, stacked(told, [spaces.flatten(space.sample()) for _ in range(rows)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_observation_enters_a_network(kind):
    told, seen = seen_of(KINDS[kind])
    design = with_heads(plan(DeferredNetwork(), told.sees), ("q", 2))
    stack = Stack.fresh(design, [1, 2])

    out = stack({name: torch.from_numpy(np.stack([value, value])) for name, value in seen.items()})

    assert out.shape == (2, 3, 2)
    assert torch.isfinite(out).all()
    assert not torch.equal(out[0], out[1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_has_the_shape_that_was_promised(kind):
    told, seen = seen_of(KINDS[kind])

    for name, part in told.sees.items():
        shape, dtype = spaces.stored(part)
        assert (seen[name].shape, str(seen[name].dtype)) == ((3, *shape), dtype)


def test_an_image_is_the_same_however_its_channels_come():
    last, first = KINDS["image"], KINDS["image, channels first"]
    picture = np.arange(432, dtype=np.uint8).reshape(12, 12, 3)

    one, other = (spaces.read(space, gym.Discrete(2)).sees["obs"] for space in (last, first))

    assert np.array_equal(
        spaces.encode(one, picture[None], 1), spaces.encode(other, picture.transpose(2, 0, 1)[None], 1)
    )


def test_members_of_a_stack_see_only_their_own_image():
    """One grouped convolution for all equals each member's alone."""
    told, seen = seen_of(BYTES)
    design = with_heads(plan(DeferredNetwork(), told.sees), ("q", 2))
    both = Stack.fresh(design, [1, 2])
    pictures = torch.from_numpy(np.stack([seen["obs"], 255 - seen["obs"]]))

    out = both({"obs": pictures})

    for member in range(2):
        alone = Stack(design, both.flat[member : member + 1].clone(), trained=False)
        assert torch.allclose(alone({"obs": pictures[member : member + 1]})[0], out[member], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "section", "wanted"),
    [
        ("vector", {}, Mlp),
        ("vector", {"simba": True}, Simba),
        ("image", {}, Cnn),
        ("dict", {}, MultiInput),
        ("vector", {"encoder_config": {"hidden_state_size": 16}}, Lstm),
        ("image", {"encoder_config": {"channel_size": [8], "kernel_size": [3], "stride_size": [2]}}, Cnn),
    ],
)
def test_the_encoder_follows_from_what_is_seen_and_what_is_written(kind, section, wanted):
    told = spaces.read(KINDS[kind], gym.Discrete(2))

    design = plan(DeferredNetwork.model_validate(section), told.sees, recurrent=wanted is Lstm)
    assert isinstance(design.encoder, wanted)


@pytest.mark.parametrize(
    ("kind", "encoder", "message"),
    [
        ("image", {"hidden_size": [64]}, "asks for an encoder of kind cnn"),
        ("vector", {"channel_size": [8]}, "asks for an encoder of kind mlp"),
        ("vector", {"activation": "PReLU"}, "PReLU has no room"),
    ],
)
def test_a_network_that_cannot_see_it_is_one_clear_error(kind, encoder, message):
    told = spaces.read(KINDS[kind], gym.Discrete(2))
    network = DeferredNetwork.model_validate({"encoder_config": encoder})

    with pytest.raises(DesignError, match=message):
        plan(network, told.sees)


@pytest.mark.parametrize(
    "space",
    [gym.Discrete(3, start=-1), gym.MultiDiscrete([2, 3]), gym.MultiBinary(2), gym.Box(-2, 3, (2,))],
)
def test_actions_are_the_environments_own(space):
    does = spaces.read(gym.Box(-1, 1, (1,)), space).does
    numbers = np.zeros((4, len(does.sizes) if does.kind == "choice" else does.width))

    for action in spaces.decode(does, numbers):
        assert space.contains(action if does.kind != "choice" or not does.single else int(action))


class Maze(gymnasium.Env):
    """A dictionary with a picture and a mask; only one action is ever allowed, any other is an error."""

    observation_space = gym.Dict({"eye": gym.Box(0, 255, (10, 10, 1), np.uint8), "compass": gym.Discrete(4)})
    action_space = gym.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return self._seen()

    def step(self, action):
        assert action == self.allowed
        self.left -= 1
        seen, info = self._seen()
        return seen, 1.0, self.left == 0, False, info

    def _seen(self):
        self.allowed = int(self.np_random.integers(3))
        eye = self.np_random.integers(0, 255, (10, 10, 1), dtype=np.uint8)
        mask = np.eye(3, dtype=np.int8)[self.allowed]
        return {"eye": eye, "compass": self.left % 4}, {MASK: mask}


@pytest.fixture
def maze():
    gymnasium.register("Maze-v0", entry_point=Maze)
    yield "Maze-v0"
    gymnasium.registry.pop("Maze-v0")


@pytest.mark.parametrize("algorithm", ["DQN", "PPO"])
def test_a_dictionary_with_an_image_and_a_mask_is_trained_and_judged(maze, tmp_path, algorithm):
    sections = {
        "environment": {"name": maze, "num_envs": 2},
        "network": {"latent_dim": 16, "encoder_config": {}, "head_config": {"hidden_size": [16]}},
        "training": {"max_steps": 80, "evo_steps": 40, "pop_size": 2},
    }

    ports = play(job_of(algorithm, **sections), tmp_path)

    assert ports.finished.state == RunState.COMPLETED, ports.finished.message
    assert {e.fitness for e in ports.of("evaluation")} == {5.0}
