"""The policy server on its own: what is loaded, what acts, and what is refused in words."""

from __future__ import annotations

import base64
import json
import socket

import numpy as np
import pytest
import torch
from playground import crew_of, drawn, floats
from policy_wire import act, acting, array, files, npy

from arena_runner.policies.crew import POLICY, SPEC
from arena_runner.server.life import listen
from arena_runner.serving.main import bound


@pytest.fixture(scope="module")
def crews():
    return {"dqn": crew_of("DQN", 2), "ppo": crew_of("PPO", 2, sees=3, does=floats(2, -0.5, 0.5))}


@pytest.fixture(scope="module")
def http(crews, tmp_path_factory):
    with acting(crews, tmp_path_factory) as client:
        yield client


@pytest.mark.parametrize(("name", "sees"), [("dqn", 4), ("ppo", 3)])
def test_it_acts_as_the_trained_member_did(http, crews, name, sees):
    crew, seen = crews[name], drawn(6, sees)
    rows = crew.algorithm.greedy(crew.groups[0], {"obs": seen.expand(2, 6, sees)}, {}).actions[1]
    wanted = rows[:, 0] if name == "dqn" else rows.clamp(-0.5, 0.5)
    answer = act(http, name, npy(seen.double().numpy()), 6)

    assert answer.status_code == 200, answer.text
    assert torch.allclose(torch.from_numpy(array(answer.json()["action"])), wanted, atol=1e-6)


def test_a_mask_leaves_only_what_is_allowed(http):
    masks = np.eye(3, dtype=np.int8)
    answer = act(http, "dqn", npy(np.zeros((3, 4))), 3, action_mask=npy(masks))

    assert array(answer.json()["action"]).tolist() == [0, 1, 2]


PICKLE = base64.b64encode(b"\x80\x04N.").decode()
LIES = base64.b64encode(base64.b64decode(npy(np.zeros((1, 4))))[:-8]).decode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"obs": npy(np.zeros((2, 3)))}, "obs: expected shape (2, 4) (batch first), got (2, 3)"),
        ({"obs": npy(np.zeros(4))}, "obs: expected shape (2, 4) (batch first), got (4,)"),
        ({"obs": npy(np.zeros((1, 4)))}, "obs: expected shape (2, 4) (batch first), got (1, 4)"),
        ({"obs": npy(np.float64(1))}, "obs: expected shape (2, 4) (batch first), got ()"),
        ({"obs": npy(np.full((2, 4), np.nan))}, "obs: holds values that are not finite"),
        ({"obs": {"left": npy(np.zeros((2, 4)))}}, "the observation has left; expected obs"),
        ({"obs": [npy(np.zeros((2, 4)))]}, "the observation has 0; expected obs"),
        ({"obs": {}}, "the observation has nothing; expected obs"),
        ({"obs": 3}, "obs: expected base64 of a .npy file, or an object or list of such"),
        ({"obs": "no!"}, "obs: expected base64 of a .npy file ("),
        ({"obs": PICKLE}, "obs: expected base64 of a .npy file ("),
        ({"obs": LIES}, "which is not what follows"),
        ({"obs": npy(np.array([["a"]]))}, "obs: expected an array of numbers, got dtype"),
        ({"action_mask": npy(np.ones((2, 4)))}, "action_mask: expected shape (2, 3)"),
        ({"action_mask": {"a": npy(np.ones((2, 3)))}}, "action_mask: expected one array"),
        ({"action_mask": npy(np.zeros((2, 3)))}, "action_mask allows no action in at least one row"),
        ({"hidden_state": {}, "obs": npy(np.zeros((2, 4)))}, None),
        ({"hidden_state": npy(np.zeros((2, 4)))}, "this policy has no memory"),
        ({"env_defined_actions": npy(np.zeros(2))}, "this policy is one agent"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_what_it_cannot_take_is_one_line_that_names_what_was_expected(http, body, says):
    fine = {"adapter": "dqn", "obs": npy(np.zeros((2, 4))), "batch_size": 2}
    answer = http.post("/act", json={**fine, **body})

    if says is None:
        assert answer.status_code == 200, answer.text
    else:
        assert answer.status_code == 422, answer.text
        assert says in answer.json()["message"]


def test_a_name_that_is_not_loaded_is_404(http):
    assert act(http, "nobody", npy(np.zeros((1, 4))), 1).status_code == 404
    assert http.post("/probe", json={"adapter": "nobody"}).status_code == 404
    assert http.delete("/adapters/nobody").status_code == 404


def test_a_probe_is_one_real_action(http):
    assert array(http.post("/probe", json={"adapter": "dqn"}).json()["action"]).shape == (1,)


def test_without_the_token_nothing_is_told(http):
    assert http.get("/adapters", headers={"Authorization": "Bearer other"}).status_code == 401
    assert http.get("/healthz", headers={"Authorization": ""}).json() == {"ok": True}


def saved(folder, change=lambda _spec: None):
    """A policy in a folder, its spec changed."""
    folder.mkdir()
    crew_of("DQN", 1).save(0, folder)
    spec = json.loads((folder / SPEC).read_text())
    change(spec)
    (folder / SPEC).write_text(json.dumps(spec))
    return files(folder)


def test_a_name_keeps_its_meaning_and_goes_when_told(http, tmp_path):
    first, other = saved(tmp_path / "a"), saved(tmp_path / "b", lambda s: s.update(note=1))
    load = lambda given: http.post("/adapters", json={"name": "x.r1", "files": given}).status_code  # noqa: E731

    assert [load(first), load(first), load(other)] == [201, 200, 409]
    assert http.delete("/adapters/x.r1").status_code == 204
    assert {one["name"] for one in http.get("/adapters").json()} == {"dqn", "ppo"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.update(format=9), "policy.json has format 9"),
        (lambda s: s.update(algorithm="CQN"), "no room for algorithm CQN"),
        (lambda s: s.pop("spaces"), "it is no policy"),
        (lambda s: s["designs"]["q"].update(latent_dim=17), "weights and designs disagree on q/"),
    ],
)
def test_files_that_are_no_policy_are_refused(http, tmp_path, change, says):
    answer = http.post("/adapters", json={"name": "bad", "files": saved(tmp_path / "p", change)})

    assert answer.status_code == 422, answer.text
    assert says in answer.json()["message"]


def test_bytes_that_are_not_those_that_were_trained_are_refused(http, tmp_path):
    given = saved(tmp_path / "p")
    (tmp_path / "p" / POLICY).write_bytes(b"other")

    answer = http.post("/adapters", json={"name": "bad", "files": given})
    assert answer.status_code == 422
    assert "expected sha256:" in answer.json()["message"]


def test_a_small_answer_does_not_wait_for_an_acknowledgement():
    """asyncio turns Nagle off for connections whose socket says that it speaks TCP, and accepted ones say what their listener does."""
    with bound("127.0.0.1", 0) as models, listen("127.0.0.1", 0, None) as control_plane:
        assert {models.proto, control_plane.proto} == {socket.IPPROTO_TCP}
