"""`arena-runner serve --engine vllm`: the same protocol over a vLLM, compared with our own decoder; it dies and is missed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types

import httpx
import psutil
import pytest
from tiny_models import make_tiny_model

TOKEN = "vllm-model-server"
GREEDY = {"temperature": 0, "max_new_tokens": 12}


@pytest.fixture(scope="module")
def servers(tmp_path_factory, adapter_writer, vllm_python):
    """What starts a server of an engine, `torch` or `vllm`, that holds two adapters; both serve one model."""
    root = tmp_path_factory.mktemp("vllm-serve")
    shape = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = make_tiny_model(root / "tiny", **shape)
    for name, seed in (("a", 1), ("b", 2)):
        adapter_writer(model, root / name, seed=seed)
    living = {}

    def serving(kind):
        if kind not in living or living[kind].process.poll() is not None:
            living[kind] = ready(root, kind, start(root, model, kind, vllm_python))
            for name in ("a", "b"):
                answer = living[kind].http.post("/adapters", json={"name": name, "path": str(root / name)})
                assert answer.status_code == 201, answer.text
        return living[kind]

    serving.root = root
    yield serving
    for server in living.values():
        server.process.terminate()
    for server in living.values():
        server.process.wait(60)


@pytest.fixture
def world(servers):
    """Both servers, alive: the test before this one may have been the one that kills."""
    return types.SimpleNamespace(torch=servers("torch"), vllm=servers("vllm"), root=servers.root)


def start(root, model, kind, python):
    (root / f"{kind}.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "arena_runner.cli", "serve", "--model", str(model), "--dtype", "float32"]
    command += [
        "--engine",
        kind,
        "--ready-file",
        str(root / f"{kind}.json"),
        "--rows",
        "8",
        "--max-rank",
        "8",
    ]
    environment = {**os.environ, "ARENA_MODEL_SERVER_TOKEN": TOKEN, "ARENA_VLLM_PYTHON": python}
    with (root / f"{kind}.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def ready(root, kind, process):
    deadline = time.monotonic() + 240
    while not (root / f"{kind}.json").exists():
        assert process.poll() is None, (root / f"{kind}.log").read_text()
        assert time.monotonic() < deadline, (root / f"{kind}.log").read_text()
        time.sleep(0.1)
    url = json.loads((root / f"{kind}.json").read_text())["url"]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return types.SimpleNamespace(
        process=process, http=httpx.Client(base_url=url, headers=headers, timeout=120)
    )


def say(server, adapter, prompt="2 and 2", **more):
    body = {"adapter": adapter, "prompts": [prompt], "params": {**GREEDY, **more}}
    answer = server.http.post("/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][0]["text"]


def test_it_says_what_our_own_decoder_says(world):
    for name in ("a", "b"):
        assert say(world.vllm, name) == say(world.torch, name)
    assert say(world.vllm, "a") != say(world.vllm, "b")


def test_a_probe_is_answered_with_our_own_probabilities(world):
    body = {"adapter": "b", "prompt_ids": [68, 69, 70], "token_ids": [71, 72, 73, 74]}
    mine, theirs = (s.http.post("/logprobs", json=body).json()["logprobs"] for s in (world.torch, world.vllm))
    assert theirs == pytest.approx(mine, abs=1e-3)


def test_what_the_worker_holds_and_how_it_answers_is_proved_and_another_digest_refused(world):
    proved = world.vllm.http.post("/prove", json={"adapter": "a"})
    assert proved.status_code == 200, proved.text
    found = proved.json()
    assert found["layers"] == 4  # q_proj and v_proj of two layers, one probe through each
    assert found["apart"] <= found["tolerance"] == 1e-3
    again = world.vllm.http.post("/prove", json={"adapter": "a", "again": True}).json()
    assert (again["digest"], again["layers"]) == (found["digest"], 0)
    assert {a["name"] for a in world.vllm.http.get("/adapters").json()} == {"a", "b"}  # no probe is left
    wrong = {"adapter": "a", "digest": "sha256:" + "0" * 64}
    assert world.vllm.http.post("/prove", json=wrong).json()["code"] == "policy-mismatch"


def test_a_row_of_the_base_is_never_given_an_adapter_beside_it(world):
    asked = [{"adapter": name, "prompts": ["ab"] * 2, "params": GREEDY} for name in ("__base__", "a", "b")]
    alone = {body["adapter"]: say(world.torch, body["adapter"], "ab") for body in asked}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as threads:
        together = list(
            threads.map(lambda body: world.vllm.http.post("/generate", json=body).json(), asked * 2)
        )
    for body, answer in zip(asked * 2, together, strict=True):
        assert {result["text"] for result in answer["results"]} == {alone[body["adapter"]]}


def test_streams_stops_and_logprobs_are_as_ours(world):
    whole = say(world.torch, "a")
    body = {"adapter": "a", "prompt": "2 and 2", "params": GREEDY, "logprobs": 2}
    told = []
    for server in (world.torch, world.vllm):
        lines = server.http.post("/generate_stream", json=body).text.splitlines()
        pieces = [json.loads(line) for line in lines]
        assert "".join(piece["text"] for piece in pieces) == whole
        told.append([token["logprob"] for piece in pieces for token in piece["tokens"]])
    assert told[1] == pytest.approx(told[0], abs=1e-3)
    stop = whole[3:5]
    assert say(world.vllm, "a", stop=[stop]) == whole.partition(stop)[0] == say(world.torch, "a", stop=[stop])


def test_an_unknown_adapter_is_404_and_a_name_keeps_its_meaning(world):
    body = {"adapter": "nobody", "prompts": ["x"]}
    assert world.vllm.http.post("/generate", json=body).status_code == 404
    other = world.vllm.http.post("/adapters", json={"name": "a", "path": str(world.root / "b")})
    assert other.status_code == 409


def test_when_the_vllm_dies_the_model_server_ends_with_it(world):
    server = world.vllm.process
    engine = next(p for p in psutil.Process(server.pid).children() if "vllm" in " ".join(p.cmdline()))
    os.kill(engine.pid, signal.SIGKILL)
    server.wait(30)
    assert world.vllm.process.poll() is not None
    os.killpg(server.pid, signal.SIGKILL) if any(alive(server.pid)) else None


def alive(group):
    """Processes of a group: what a supervisor sweeps."""
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
