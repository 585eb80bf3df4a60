"""Served policies of several agents: a dict of observations in, a dict of actions out, as the published client has them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from playground import choices, crowd_of, drawn, floats
from policy_wire import act, acting, array, npy

from arena_runner.policies import spaces

ROWS = 5
MIXED = {"walker": (2, choices(3)), "glider": (3, floats(2, -0.5, 1.5))}
SEEN = {name: drawn(ROWS, sees, seed=n) for n, (name, (sees, _)) in enumerate(MIXED.items())}


@pytest.fixture(scope="module")
def crews():
    return {
        "ippo": crowd_of("IPPO", 2, MIXED),
        "maddpg": crowd_of("MADDPG", 2, MIXED),
    }


@pytest.fixture(scope="module")
def http(crews, tmp_path_factory):
    with acting(crews, tmp_path_factory) as client:
        yield client


def wanted(crew):
    """What the second member's agents do."""
    seen = {f"{name}/obs": value.expand(2, *value.shape) for name, value in SEEN.items()}
    actions = crew.algorithm.greedy(crew.groups[0], seen, {}).actions[1].numpy()
    places = crew.spaces.places()
    return {a: spaces.decode(own.does, actions[:, places[a]]) for a, own in crew.spaces.agents.items()}


def obs(*names):
    return {name: npy(SEEN[name].double().numpy()) for name in names or SEEN}


def done(answer):
    assert answer.status_code == 200, answer.text
    return {name: array(one) for name, one in answer.json()["action"].items()}


@pytest.mark.parametrize("name", ["ippo", "maddpg"])
def test_every_agent_does_what_it_did_in_training(http, crews, name):
    found, should = done(act(http, name, obs(), ROWS)), wanted(crews[name])

    assert list(found) == ["walker", "glider"]
    assert (found["walker"].shape, found["walker"].dtype) == ((ROWS,), np.int64)
    assert np.array_equal(found["walker"], should["walker"])
    assert np.allclose(found["glider"], should["glider"], atol=1e-6)


def test_agents_that_are_not_seen_are_not_answered_and_change_nothing(http, crews):
    found = done(act(http, "ippo", obs("glider"), ROWS))

    assert list(found) == ["glider"]
    assert np.allclose(found["glider"], wanted(crews["ippo"])["glider"], atol=1e-6)


def test_masks_are_by_agent(http):
    mask = np.eye(3, dtype=np.int8)[[2, 0, 1, 2, 0]]

    found = done(act(http, "maddpg", obs(), ROWS, action_mask={"walker": npy(mask), "glider": None}))

    assert found["walker"].tolist() == [2, 0, 1, 2, 0]


def test_what_the_environment_has_decided_stands(http, crews):
    given = np.full((ROWS, 2), np.nan)
    given[3] = [0.25, 0.5]
    found = done(act(http, "ippo", obs(), ROWS, env_defined_actions={"glider": npy(given)}))
    should = wanted(crews["ippo"])["glider"]
    should[3] = [0.25, 0.5]

    assert found["glider"].dtype == np.float32
    assert np.allclose(found["glider"], should, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"obs": npy(np.zeros((1, 2)))}, "obs: expected an object by agent (walker, glider)"),
        ({"obs": {}}, "obs is of no agent; expected walker, glider"),
        (
            {"obs": {"rider": npy(np.zeros((1, 2)))}},
            "obs names rider; this policy's agents are walker, glider",
        ),
        (
            {"obs": {"walker": npy(np.zeros((ROWS, 3)))}},
            f"walker.obs: expected shape ({ROWS}, 2) (batch first), got ({ROWS}, 3)",
        ),
        (
            {"obs": {"walker": {"left": npy(np.zeros((ROWS, 2)))}}},
            "the observation of walker has left; expected obs",
        ),
        (
            {"action_mask": {"glider": npy(np.ones((ROWS, 2)))}},
            "glider.action_mask is for discrete actions; this policy's are continuous",
        ),
        (
            {"env_defined_actions": {"walker": npy(np.ones((ROWS, 2)))}},
            f"walker.env_defined_actions: expected shape ({ROWS},) (batch first), got ({ROWS}, 2)",
        ),
        ({"hidden_state": {"walker": npy(np.zeros((ROWS, 1)))}}, "this policy has no memory"),
    ],
    ids=["an array", "nobody", "a stranger", "shape", "part", "mask", "defined", "memory"],
)
def test_what_does_not_fit_is_said_of_its_agent(http, body, says):
    answer = http.post("/act", json={"adapter": "ippo", "obs": obs(), "batch_size": ROWS, **body})

    assert (answer.status_code, answer.json()["code"]) == (422, "bad-observation")
    assert says in answer.json()["message"]


def test_a_probe_is_an_action_of_every_agent(http):
    found = http.post("/probe", json={"adapter": "maddpg"}).json()["action"]

    assert {name: array(one).shape for name, one in found.items()} == {"walker": (1,), "glider": (1, 2)}


def test_parts_that_an_agent_sees_keep_their_order(tmp_path_factory):
    sees = gymnasium.spaces.Dict(
        place=gymnasium.spaces.Box(-1, 1, (2,)), door=gymnasium.spaces.Discrete(3, start=1)
    )
    own = spaces.read(sees, gymnasium.spaces.Discrete(2))
    crew = crowd_of("IPPO", 2, {"a": (own.sees, floats(2))}, network={"latent_dim": 8, "encoder_config": {}})
    place, door = drawn(ROWS, 2).numpy(), np.array([1, 3, 2, 2, 1])
    seen = {"a/place": torch.from_numpy(place), "a/door": torch.from_numpy(door[:, None] - 1)}
    rows = {name: value.expand(2, *value.shape) for name, value in seen.items()}
    should = crew.algorithm.greedy(crew.groups[0], rows, {}).actions[1]
    with acting({"dict": crew}, tmp_path_factory) as http:
        found = done(act(http, "dict", {"a": {"door": npy(door), "place": npy(place)}}, ROWS))

    assert list(own.sees) == ["place", "door"]
    assert np.allclose(found["a"], should.clamp(-1, 1).numpy(), atol=1e-6)


def test_torch_sees_the_numbers_of_the_wire(http, crews):
    """Two rows asked alone are the two rows asked together."""
    alone = [
        done(act(http, "maddpg", {n: npy(v[k : k + 1].numpy()) for n, v in SEEN.items()}, 1)) for k in (0, 1)
    ]
    together = done(act(http, "maddpg", obs(), ROWS))

    for k, one in enumerate(alone):
        assert torch.allclose(
            torch.from_numpy(one["glider"][0]), torch.from_numpy(together["glider"][k]), atol=1e-6
        )
