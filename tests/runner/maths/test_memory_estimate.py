"""The closed form of `spec.memory` against what iterations of the trainer really take."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import make_tiny_model

from arena_gitops.spec.memory import FP32, TOLERANCE, facts_of, load_of, need

PROGRAM = Path(__file__).with_name("measured_update.py")
MARK = Path("/proc/self/clear_refs")
PLAIN = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
PLAIN |= {"head_dim": 32, "num_hidden_layers": 4}
WORK = {"prompts": 2, "group": 8, "prompt": 48, "new": 32}
CASES = {
    "activations": (PLAIN, {"members": 2, "rank": 8, "targets": ["q_proj", "v_proj"]}),
    "every layer adapted": (PLAIN, {"members": 2, "rank": 8, "targets": "all-linear"}),
    "many large adapters": (
        {**PLAIN, "num_hidden_layers": 2},
        {"members": 6, "rank": 64, "targets": "all-linear"},
    ),
    "weights": (
        {**PLAIN, "hidden_size": 512, "intermediate_size": 2048, "head_dim": 128, "num_hidden_layers": 2},
        {"members": 2, "rank": 4, "targets": ["q_proj"]},
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return {
        name: make_tiny_model(folder / str(n), **shape) for n, (name, (shape, _)) in enumerate(CASES.items())
    }


@pytest.fixture(scope="module")
def measured(models):
    """Bytes of every case, in one process that forgets its peak in between; freed memory goes back at once."""
    if not MARK.exists():
        pytest.skip("this system does not say how much memory a process took at most since a moment")
    cases = [{"model": str(models[name]), **population, **WORK} for name, (_, population) in CASES.items()]
    done = subprocess.run(
        [sys.executable, PROGRAM, json.dumps(cases)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_as_near_as_it_says(models, measured, name):
    _, population = CASES[name]
    work = {"batch_size": WORK["prompts"], "group_size": WORK["group"], "max_output_tokens": WORK["new"]}
    lora = {"lora_r": population["rank"], "target_modules": population["targets"]}
    manifest = {
        "algorithm": work,
        "training": {"pop_size": population["members"]},
        "network": {"lora_config": lora},
    }
    facts = facts_of(name, json.loads((models[name] / "config.json").read_text()))
    found = need(facts, load_of(manifest), device="cpu", dtype=FP32, prompt_tokens=WORK["prompt"])
    assert found.peak == pytest.approx(measured[name]["taken"], rel=TOLERANCE)
