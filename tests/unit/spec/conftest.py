"""Small manifests of our own, one for each published dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

FOLDER = Path(__file__).parent / "manifests"


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


@pytest.fixture
def manifest_of():
    """Loads one of the manifests beside this file, fresh, so that a test may change it."""
    return lambda name: load(FOLDER / f"{name}.yaml")


@pytest.fixture
def grpo():
    """The smallest GRPO manifest; a test adds what it is about."""
    return {
        "algorithm": {"name": "GRPO", "batch_size": 4, "group_size": 4, "lr": 1e-4},
        "environment": {"name": "sums"},
        "training": {"max_steps": 1_000, "evo_steps": 5, "pop_size": 2, "hpo": True},
        "network": {
            "pretrained_model_name_or_path": "someone/tiny",
            "max_context_length": 128,
            "lora_config": {"lora_dropout": 0.0},
        },
    }
