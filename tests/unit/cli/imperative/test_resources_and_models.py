"""arena resources and arena models, at a real server."""

from __future__ import annotations

import json

from arena_gitops.spec.algorithms import ALGORITHMS


def test_tiers_are_listed_with_their_price(arena):
    assert [row["id"] for row in arena.json("resources", "list")] == ["local"]
    assert arena("resources", "list").splitlines()[0].startswith("RESOURCE ID  GPUS  CPUS  RAM (GB)")


def test_workers_are_listed_with_what_they_do(at_script, scripted):
    idle = {
        "worker_id": "gpu-7-1-ab",
        "hostname": "gpu-7",
        "tier": "gpu",
        "executor": "pull",
        "state": "idle",
    }
    idle |= {"version": "1.0", "heartbeat": 1_800_000_000.0}
    busy = {**idle, "worker_id": "gpu-8-1-cd", "state": "busy", "run_id": "r_1", "experiment": "sums"}
    scripted.will((200, json.dumps([idle, busy]).encode(), {}))
    heading, first, second = at_script("resources", "workers").splitlines()
    assert heading.split()[:4] == ["WORKER", "HOST", "TIER", "STATE"]
    assert first.split()[:6] == ["gpu-7-1-ab", "gpu-7", "gpu", "idle", "-", "-"]
    assert second.split()[3:6] == ["busy", "sums", "r_1"]
    scripted.will((200, json.dumps([busy]).encode(), {}))
    assert at_script.json("resources", "workers")[0]["run_id"] == "r_1"


def test_a_server_without_workers_says_so(arena):
    assert arena.json("resources", "workers") == []


def test_models_of_the_server_are_listed_and_shown(at_script, scripted):
    row = {"model_name": "tiny", "num_params": 1000, "max_context_length": 64, "served_by": "tiny"}
    row["lora_info"] = {"target_modules": ["q_proj", "v_proj"]}
    scripted.will((200, json.dumps([row]).encode(), {}))
    assert at_script("models", "list").splitlines()[1].split("  ")[0] == "tiny"
    full = {**row, "modules": ["q_proj"], "parameters": {"model.layers.0.q_proj.weight": [8, 8]}}
    scripted.will((200, json.dumps(full).encode(), {}))
    out = at_script("models", "info", "tiny")
    assert "parameters    1000" in out
    assert "model.layers.0.q_proj.weight  8x8" in out
    assert at_script.json("models", "info", "tiny")["modules"] == ["q_proj"]


def test_an_unknown_model_is_the_servers_own_message(arena):
    assert arena.json("models", "list") == []
    assert "model 'none' does not exist" in arena.both("models", "info", "none", expect=1)[1]


def test_what_is_supported_asks_no_server(alone):
    found = alone.json("models", "supported")
    assert found["algorithms"] == sorted(ALGORITHMS)
    assert "safetensors" in alone("models", "supported")
