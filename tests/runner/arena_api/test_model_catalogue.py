"""Model folders are described from their headers, without torch."""

from __future__ import annotations

import pytest

from arena_runner.server import catalogue
from arena_runner.server.refusals import RefusedError


def test_a_model_folder_is_described_by_its_headers(tiny_model_dir):
    found = catalogue.model(tiny_model_dir.parent, tiny_model_dir.name)

    assert found.context == 1024
    assert found.modules == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert found.parameters == 259 * 32 + 2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64 + 2 * 32) + 32


def test_a_model_that_is_not_here_is_not_found(tmp_path):
    with pytest.raises(RefusedError, match="nowhere"):
        catalogue.model(tmp_path, "nowhere")


def test_a_broken_weight_file_is_said(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"\xff" * 16)

    with pytest.raises(RefusedError, match="cannot be read"):
        list(catalogue.models(tmp_path))
