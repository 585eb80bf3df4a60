"""Served policies that see several parts, pictures and categories, and those that remember."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from playground import crew_of
from policy_wire import act, acting, array, npy

from arena_runner.policies import spaces

BOX, DOOR = gymnasium.spaces.Box(-1, 1, (2, 2), np.float32), gymnasium.spaces.Discrete(3, start=1)
PICTURE = gymnasium.spaces.Box(0, 255, (12, 12, 3), np.uint8)
DICT = gymnasium.spaces.Dict({"place": BOX, "door": DOOR, "picture": PICTURE})
TUPLE = gymnasium.spaces.Tuple((BOX, gymnasium.spaces.Dict({"door": DOOR})))
SMALL = {"network": {"latent_dim": 8, "encoder_config": {}, "head_config": {"hidden_size": [8]}}}
ROWS = 5


def seen_by(space):
    return dict(spaces._parts(space))


CREWS = {
    "dict": lambda: crew_of("PPO", 2, sees=seen_by(DICT), **SMALL),
    "tuple": lambda: crew_of("DQN", 2, sees=seen_by(TUPLE), **SMALL),
    "recurrent": lambda: crew_of("Recurrent PPO", 2, sees=4, network={"latent_dim": 8, "encoder_config": {}}),
}


@pytest.fixture(scope="module")
def crews():
    return {name: make() for name, make in CREWS.items()}


@pytest.fixture(scope="module")
def http(crews, tmp_path_factory):
    with acting(crews, tmp_path_factory) as client:
        yield client


def wanted(crew, seen, memory=None):
    """What the trained member does: actions (rows, k) and what it remembers."""
    tensors = {
        name: torch.from_numpy(value).unsqueeze(0).expand(2, *value.shape) for name, value in seen.items()
    }
    acted = crew.algorithm.greedy(crew.groups[0], tensors, memory or {})
    return acted.actions[1].numpy(), acted.memory


def drawn(space, rows=ROWS):
    space.seed(3)
    return [space.sample() for _ in range(rows)]


def test_a_dict_of_vector_category_and_picture_is_seen_whole(http, crews):
    some = drawn(DICT)
    parts = {name: np.stack([one[name] for one in some]) for name in some[0]}
    seen = {name: spaces.encode(part, parts[name], ROWS) for name, part in crews["dict"].spaces.sees.items()}
    answer = act(http, "dict", {name: npy(value) for name, value in parts.items()}, ROWS)

    assert answer.status_code == 200, answer.text
    assert np.array_equal(array(answer.json()["action"]), wanted(crews["dict"], seen)[0][:, 0])


def test_a_tuple_may_hold_a_dict_and_travels_as_a_list(http, crews):
    some = drawn(TUPLE)
    first, second = np.stack([one[0] for one in some]), np.stack([one[1]["door"] for one in some])
    given = {"0": first, "1.door": second}
    seen = {name: spaces.encode(part, given[name], ROWS) for name, part in crews["tuple"].spaces.sees.items()}
    answer = act(http, "tuple", [npy(first), {"door": npy(second)}], ROWS)

    assert answer.status_code == 200, answer.text
    assert np.array_equal(array(answer.json()["action"]), wanted(crews["tuple"], seen)[0][:, 0])


@pytest.mark.parametrize(
    ("name", "obs", "said"),
    [
        (
            "dict",
            {"place": npy(np.zeros((1, 2, 2)))},
            "the observation has place; expected door, picture, place",
        ),
        (
            "tuple",
            [npy(np.zeros((1, 2, 2))), {"door": npy(np.array([9]))}],
            "1.door: expected categories from 1 to 3",
        ),
    ],
)
def test_a_part_that_is_missing_or_not_in_its_space_is_named(http, name, obs, said):
    answer = act(http, name, obs, 1)

    assert (answer.status_code, answer.json()["message"]) == (422, said)


def test_one_that_remembers_goes_on_from_what_the_last_answer_gave(http, crews):
    """Six steps: each with the memory of the one before, as in training; without it every step is a first one."""
    steps = np.random.default_rng(0).normal(size=(6, ROWS, 4)).astype(np.float32)
    memory, hidden, forgetful = {}, None, []
    for seen in steps:
        rows, memory = wanted(crews["recurrent"], {"obs": seen}, memory)
        more = {} if hidden is None else {"hidden_state": hidden}
        answer = act(http, "recurrent", npy(seen), ROWS, **more).json()
        hidden = answer["hidden_state"]
        forgetful.append(act(http, "recurrent", npy(seen), ROWS).json()["hidden_state"])

        assert np.array_equal(array(answer["action"]), rows[:, 0])
        for name, value in memory.items():
            assert np.allclose(array(hidden[name]), value[1].numpy(), atol=1e-6), name

    name = next(iter(hidden))
    assert not np.allclose(array(hidden[name]), array(forgetful[-1][name]), atol=1e-3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _hidden: {}, "hidden_state: expected what the last answer gave ("),
        (lambda hidden: {name: npy(array(one)[:2]) for name, one in hidden.items()}, ": expected shape (5, "),
    ],
)
def test_a_memory_of_another_shape_is_refused(http, change, said):
    seen = npy(np.zeros((ROWS, 4)))
    hidden = act(http, "recurrent", seen, ROWS).json()["hidden_state"]
    answer = act(http, "recurrent", seen, ROWS, hidden_state=change(hidden))

    assert answer.status_code == 422
    assert said in answer.json()["message"]
