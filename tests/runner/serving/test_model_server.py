"""`arena-runner serve` over HTTP, as the control plane uses it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import httpx

from arena_runner.serving.protocol import BASE

GREEDY = {"temperature": 0, "max_new_tokens": 32}


def load(server, adapters, name, **more):
    return server.http.post("/adapters", json={"name": name, "path": str(adapters[name][0]), **more})


def say(server, adapter, prompt, **more):
    return server.http.post(
        "/generate", json={"adapter": adapter, "prompts": [prompt], "params": GREEDY, **more}
    )


def streamed(server, body):
    with server.http.stream("POST", "/generate_stream", json=body) as answer:
        assert answer.status_code == 200
        return [json.loads(line) for line in answer.iter_lines()]


def test_health_needs_no_token_and_everything_else_does(model_server):
    health = httpx.get(f"{model_server.url}/healthz").json()
    assert health["ok"] is True
    assert health["dtype"] == "float32"
    refused = httpx.post(f"{model_server.url}/generate", json={"adapter": BASE, "prompts": ["x"]})
    assert (refused.status_code, refused.json()["code"]) == (401, "bad-token")


def test_an_adapter_is_loaded_listed_used_and_unloaded(model_server, adapters):
    assert say(model_server, "c@1", "x").status_code == 404
    loaded = load(model_server, adapters, "c@1")
    assert (loaded.status_code, loaded.json()["digest"]) == (201, adapters["c@1"][1])
    assert load(model_server, adapters, "c@1").status_code == 200
    assert "c@1" in [entry["name"] for entry in model_server.http.get("/adapters").json()]
    assert say(model_server, "c@1", "x").status_code == 200
    assert model_server.http.delete("/adapters/c@1").status_code == 204
    gone = say(model_server, "c@1", "x")
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown-adapter")
    assert model_server.http.delete("/adapters/c@1").status_code == 404


def test_a_name_never_changes_its_meaning(model_server, adapters):
    load(model_server, adapters, "a@1")
    body = {"name": "a@1", "path": str(adapters["b@1"][0])}
    refused = model_server.http.post("/adapters", json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "name-taken")


def test_files_are_verified_one_by_one_wherever_they_lie(model_server, adapters, tmp_path):
    files = {}
    for path in adapters["a@1"][0].iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        (tmp_path / digest).write_bytes(path.read_bytes())
        files[path.name] = {"path": str(tmp_path / digest), "digest": f"sha256:{digest}"}
    assert model_server.http.post("/adapters", json={"name": "files@1", "files": files}).status_code == 201
    bad = {**files, "adapter_config.json": {**files["adapter_config.json"], "digest": "sha256:" + "0" * 64}}
    refused = model_server.http.post("/adapters", json={"name": "files@2", "files": bad})
    assert refused.status_code == 422
    assert "not to sha256:0000" in refused.json()["message"]


def test_another_digest_than_the_one_asked_for_is_refused(model_server, adapters):
    refused = load(model_server, adapters, "b@1", digest=adapters["a@1"][1])
    assert refused.status_code == 422
    assert "was asked for" in refused.json()["message"]
    assert say(model_server, "b@1", "x").status_code == 404


def test_streamed_pieces_join_to_the_whole_answer(model_server, adapters):
    load(model_server, adapters, "a@1")
    whole = say(model_server, "a@1", "Hello").json()["results"][0]
    pieces = streamed(model_server, {"adapter": "a@1", "prompt": "Hello", "params": GREEDY})
    assert "".join(piece.get("text", "") for piece in pieces) == whole["text"]
    assert pieces[-1]["finish"] == whole["finish"]
    assert len(pieces) > 3


def test_a_prompt_is_rendered_by_the_experiments_template(model_server, adapters):
    template = {"system_0": "Add.", "user_1": "Sum of {question}?"}
    body = {"name": "told@1", "path": str(adapters["a@1"][0]), "template": template}
    assert model_server.http.post("/adapters", json=body).status_code == 201
    rendered = "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\nSum of 2 and 2?<|im_end|>\n<|im_start|>assistant\n"
    by_hand = say(model_server, "told@1", rendered, raw=True).json()["results"]
    assert say(model_server, "told@1", "2 and 2").json()["results"] == by_hand
    chat = {"adapter": "told@1", "messages": [[{"role": "user", "content": "2 and 2"}]], "params": GREEDY}
    assert model_server.http.post("/generate", json=chat).json()["results"] == by_hand


def test_what_is_not_understood_is_refused_by_name(model_server):
    body = {"adapter": BASE, "prompts": ["x"], "params": {"top_k": 5}}
    refused = model_server.http.post("/generate", json=body)
    assert refused.status_code == 422
    assert "body.params.top_k" in refused.json()["message"]
    empty = model_server.http.post("/generate", json={"adapter": BASE, "prompts": [""], "raw": True})
    assert (empty.status_code, empty.json()["code"]) == (422, "empty-prompt")


def test_a_model_server_without_a_token_does_not_start(tiny_model_dir):
    environment = {key: value for key, value in os.environ.items() if key != "ARENA_MODEL_SERVER_TOKEN"}
    command = [sys.executable, "-m", "arena_runner.cli", "serve", "--model", str(tiny_model_dir)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "never runs without a token" in done.stderr
