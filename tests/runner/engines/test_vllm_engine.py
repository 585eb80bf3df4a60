"""What only the vLLM engine has: names, a process that may die, an interpreter that may be missing."""

from __future__ import annotations

import os
import signal

import httpx
import pytest
from labs import make_lab

from arena_runner.engines.base import Request
from arena_runner.engines.vllm_process import BASE, EngineError, VllmProcess, VllmSpec


def names(process):
    return {model["id"] for model in process.http.get("/v1/models").json()["data"]}


def test_an_adapter_that_changed_has_a_new_name_and_its_old_one_is_gone(learner, process, vllm_engine):
    vllm_engine.sync([0, 1, 2])
    first = names(process)
    learner.population.masters[learner.population.span(1)] += 0.01
    learner.population.sync()
    vllm_engine.sync([0, 1, 2])
    second = names(process)

    assert len(first) == len(second)
    assert {name[:2] for name in first - second} == {"m1"} == {name[:2] for name in second - first}
    assert {path.name for path in vllm_engine._folder.iterdir()} == second - {BASE}


def test_a_killed_process_comes_back_with_its_adapters(process, vllm_engine):
    asked = [Request(m, (5, 6, 7), 12, greedy=True) for m in (0, 1, 2, None)]
    before = vllm_engine.generate(asked)
    os.killpg(process._process.pid, signal.SIGKILL)
    process._process.wait(20)

    assert [c.token_ids for c in vllm_engine.generate(asked)] == [c.token_ids for c in before]


def test_no_route_answers_without_the_key(process):
    for path in ("/arena/adapters", "/v1/models", "/collective_rpc"):
        assert httpx.post(f"{process.http.base_url}{path}", json={}, trust_env=False).status_code == 401


def test_a_folder_that_holds_no_model_is_one_error_with_what_vllm_said(process, tmp_path):
    spec = VllmSpec(tmp_path, "float32", 1, 8, longest=64, rows_in_flight=4)

    with pytest.raises(EngineError, match="vLLM did not start; it printed last:"):
        VllmProcess(spec, process._python, tmp_path / "broken").__enter__()


def test_a_rank_above_the_kernels_is_refused_by_number(tmp_path):
    with pytest.raises(EngineError, match="lora_r 1024 is more than vLLM's largest, 512"):
        VllmSpec(tmp_path, "float32", 1, 1024, longest=64, rows_in_flight=4).command("python", 1)


def test_a_whole_run_samples_with_it(process, tmp_path, monkeypatch):
    """The loop of training over a vLLM of its own: two members, two iterations, an evaluation."""
    model = process.spec.model
    monkeypatch.setenv("ARENA_ENGINE", "vllm")
    monkeypatch.setenv("ARENA_VLLM_PYTHON", process._python)
    monkeypatch.setenv("ARENA_THREADS", "1")
    monkeypatch.setenv("ARENA_DTYPE", "float32")
    monkeypatch.setenv("ARENA_ROWS_IN_FLIGHT", "16")
    lab = make_lab(tmp_path, model)
    ended = lab.run(lab.job("GRPO", training={"max_steps": 16}))

    assert ended.of("started")[0].engine == "vllm"
    assert ended.finished.state == "completed"
    assert max(e.values["logp_diff"] for e in ended.of("metrics") if "logp_diff" in e.values) <= 1e-3
