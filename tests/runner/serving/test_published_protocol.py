"""`/i/{deployment}`: what the published client asks and what it is told."""

from __future__ import annotations

import numpy as np
import pytest
from policy_wire import array, npy

GREEDY = {"temperature": 0, "max_new_tokens": 24}
LABEL = "maths@1 step_96/m1 run-1"


def test_status_has_exactly_the_published_keys(plane):
    plane.deploy("maths", "maths@1")
    answer = plane.http().get("/i/maths/status")
    assert answer.headers["x-arena-served-by"] == LABEL
    flags = {"multi_agent": False, "llm": True, "recurrent": False, "supervised": False}
    assert answer.json() == {
        "success": True,
        "deployment_id": "maths",
        "instance_id": "maths@1",
        "agent": {"algo": "GRPO", **flags},
    }


PROMPTS = ["2 and 2", "3 and 9", "a longer question than the others"]


def test_a_supervised_model_predicts_what_it_generates_greedily(plane):
    plane.deploy("maths", "maths@1", algorithm="SFT")
    with plane.http() as http:
        status = http.get("/i/maths/status").json()
        answer = http.post("/i/maths/predict", json={"inputs": npy(np.array(PROMPTS))}).json()
        body = {"prompts": PROMPTS, "params": {"temperature": 0, "max_new_tokens": 512}}
        said = http.post("/i/maths/generate", json=body).json()["results"]

    assert status["agent"] is None  # told what it is, the client would refuse to ask for the other
    assert set(answer) == {"success", "results", "batch_size", "inference_time_ms"}
    assert answer["batch_size"] == 3
    assert array(answer["results"]).tolist() == [one["completion"] for one in said]


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (npy(np.zeros((2, 3))), "inputs: expected an array of text, got dtype float64"),
        (npy(np.array([["a", "b"]])), "inputs: expected one array of text of shape (rows,), got (1, 2)"),
        (npy(np.array("a")), "got ()"),
        ("no!", "inputs: expected base64 of a .npy file"),
        ({"a": "b"}, "inputs: expected one array of text of shape (rows,)"),
    ],
    ids=["numbers", "columns", "no row", "no array", "an object"],
)
def test_inputs_that_are_no_text_are_refused_in_words(plane, inputs, says):
    plane.deploy("maths", "maths@1", algorithm="SFT")
    answer = plane.http().post("/i/maths/predict", json={"inputs": inputs})

    assert answer.status_code == 422
    assert says in answer.json()["message"]


def test_generate_answers_every_prompt_in_order(plane):
    plane.deploy("maths", "maths@1")
    body = {"prompts": ["2 and 2", "3 and 9"], "params": GREEDY}
    answer = plane.http().post("/i/maths/generate", json=body)
    assert set(answer.json()) == {
        "success",
        "results",
        "batch_size",
        "inference_time_ms",
        "tokens_per_second",
    }
    assert [set(result) for result in answer.json()["results"]] == [{"prompt", "completion"}] * 2
    assert [result["prompt"] for result in answer.json()["results"]] == body["prompts"]


def test_a_stream_is_raw_text_that_joins_to_the_whole(plane):
    plane.deploy("maths", "maths@1")
    whole = plane.http().post("/i/maths/generate", json={"prompts": ["2 and 2"], "params": GREEDY}).json()
    with plane.http().stream(
        "POST", "/i/maths/generate_stream", json={"prompt": "2 and 2", "params": GREEDY}
    ) as got:
        assert got.headers["x-arena-served-by"] == LABEL
        chunks = list(got.iter_text())
    assert "".join(chunks) == whole["results"][0]["completion"]
    assert len(chunks) > 1


def test_the_defaults_are_the_published_clients(plane):
    plane.deploy("maths", "maths@1")
    with plane.http().stream(
        "POST", "/i/maths/generate_stream", json={"prompt": "hi", "session_id": "x"}
    ) as got:
        assert got.status_code == 200
        got.read()


def test_a_new_revision_answers_at_once_under_the_same_name(plane):
    plane.deploy("maths", "maths@1")
    body = {"prompts": ["2 and 2"], "params": GREEDY}
    before = plane.http().post("/i/maths/generate", json=body).json()["results"]
    plane.deploy("maths", "maths@2", number=2)
    answer = plane.http().post("/i/maths/generate", json=body)
    assert answer.headers["x-arena-served-by"].startswith("maths@2 ")
    assert answer.json()["results"] != before


def test_an_unknown_deployment_is_404_and_names_what_there_is(plane):
    plane.deploy("maths", "maths@1")
    answer = plane.http().post("/i/math/generate", json={"prompts": ["x"]})
    assert answer.status_code == 404
    assert answer.json()["message"] == "deployment math does not exist; there are: maths"


def test_a_deployment_that_does_not_serve_yet_is_503_with_a_time_to_come_back(plane):
    plane.deploy("maths", "maths@1", state="loading")
    answer = plane.http().get("/i/maths/status")
    assert (answer.status_code, answer.json()["code"]) == (503, "not-serving")
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["message"] == "deployment maths is loading: told so by a test"


def test_an_adapter_its_model_server_has_lost_is_503_and_never_the_base(plane):
    plane.deploy("maths", "maths@77")
    answer = plane.http().post("/i/maths/generate", json={"prompts": ["x"]})
    assert answer.status_code == 503
    assert answer.json()["message"] == "deployment maths is being loaded again"


def test_a_model_server_that_is_gone_is_503(plane):
    from arena_runner.server.world import ModelServer

    plane.world.links.model_servers["tiny"] = ModelServer("http://127.0.0.1:9", "x")
    plane.deploy("maths", "maths@1")
    answer = plane.http().post("/i/maths/generate", json={"prompts": ["x"]})
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["message"]


def test_a_model_server_that_breaks_off_ends_the_stream_with_the_published_sentinel(plane):
    import socket
    import threading

    from arena_runner.server.world import ModelServer

    def half_an_answer(listener):
        connection, _ = listener.accept()
        connection.recv(65536)
        line = b'{"text":"so far"}\n'
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + f"{len(line):x}\r\n".encode() + line + b"\r\n")
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=half_an_answer, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        plane.world.links.model_servers["tiny"] = ModelServer(url, "x")
        plane.deploy("maths", "maths@1")
        with plane.http().stream("POST", "/i/maths/generate_stream", json={"prompt": "x"}) as got:
            text = got.read().decode()
    assert text.startswith("so far\n[ERROR: the model server broke off (")


@pytest.mark.parametrize("route", ["get_action", "predict"])
def test_routes_of_another_kind_of_agent_are_400_in_words(plane, route):
    plane.deploy("maths", "maths@1")
    answer = plane.http().post(f"/i/maths/{route}", json={"obs": "x", "inputs": "x", "batch_size": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "wrong-kind")
    assert "is a language model: use generate" in answer.json()["message"]


@pytest.mark.parametrize("role", ["viewer", "worker"])
def test_other_roles_may_not_ask(plane, role):
    plane.deploy("maths", "maths@1")
    assert plane.http(role).get("/i/maths/status").status_code == 403
    assert plane.http(role).get("/v1/models").status_code == 403


def test_unknown_sampling_parameters_are_refused_by_name(plane):
    plane.deploy("maths", "maths@1")
    answer = plane.http().post("/i/maths/generate", json={"prompts": ["x"], "params": {"top_k": 3}})
    assert answer.status_code == 422
    assert "params.top_k" in answer.json()["message"]


def test_a_flip_under_load_drops_no_request_and_every_answer_is_its_own_revisions(plane):
    from concurrent.futures import ThreadPoolExecutor

    body = {"prompts": ["2 and 2"], "params": {"temperature": 0, "max_new_tokens": 64}}
    plane.deploy("maths", "maths@1")
    with plane.http() as http, ThreadPoolExecutor(8) as threads:

        def ask(_number):
            answer = http.post("/i/maths/generate", json=body)
            assert answer.status_code == 200, answer.text
            return answer.headers["x-arena-served-by"].split()[0], answer.json()["results"][0]["completion"]

        old = ask(0)
        answers = [threads.submit(ask, number) for number in range(12)]
        answers[0].result()  # the others are on their way or answered
        plane.deploy("maths", "maths@2", number=2)
        answers += [threads.submit(ask, number) for number in range(12)]
        seen = {future.result() for future in answers}
        new = ask(0)
    assert {old, new} == seen
    assert [old[0], new[0]] == ["maths@1", "maths@2"]
    assert old[1] != new[1]
