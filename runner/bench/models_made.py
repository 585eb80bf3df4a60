"""Random models for benchmarks, with the byte tokenizer of the tests; folders that go away."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))

TINY: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
}
"""0.8 million parameters"""
MIDDLE: dict[str, Any] = {
    "hidden_size": 640,
    "intermediate_size": 1792,
    "num_hidden_layers": 12,
    "num_attention_heads": 10,
    "num_key_value_heads": 5,
    "head_dim": 64,
}
"""56 million parameters: large enough for memory to be the model's"""


@contextmanager
def made(shape: dict[str, Any], arch: str = "qwen2") -> Iterator[str]:
    """A model folder."""
    from tiny_models import make_tiny_model

    with tempfile.TemporaryDirectory() as folder:
        yield str(make_tiny_model(Path(folder) / "model", arch, **shape))


def sums(count: int) -> list[dict[str, str]]:
    """Questions with answers, all of about the same length."""
    return [
        {"question": f"What is {10 + n} plus {20 + n}?", "answer": f"#### {30 + 2 * n}"} for n in range(count)
    ]
