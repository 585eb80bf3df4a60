"""arena manifest: problems with their places; no repository, no server."""

from __future__ import annotations

import io
import json

import pytest

GOOD = """\
algorithm: {name: GRPO, lr: 0.00001}
environment: {name: sums}
training: {max_steps: 1_000, hpo: false}
network: {pretrained_model_name_or_path: tiny, max_context_length: 128}
"""


def test_a_valid_manifest_says_what_it_trains(alone):
    (alone.folder / "m.yaml").write_text(GOOD)
    assert alone("manifest", "validate", "m.yaml") == "valid: m.yaml trains GRPO\n"
    found = alone.json("manifest", "validate", "m.yaml", "--payload")
    assert (found["valid"], found["algorithm"], found["manifest"]["training"]["max_steps"]) == (
        True,
        "GRPO",
        1000,
    )
    assert json.loads(alone("manifest", "validate", "m.yaml", "--payload")) == found["manifest"]


def test_every_problem_has_its_line_and_column(alone):
    (alone.folder / "m.yaml").write_text(
        GOOD.replace("lr:", "lrr:").replace("max_steps: 1_000", "max_steps: many")
    )
    _, err = alone.both("manifest", "validate", "m.yaml", expect=65)
    assert "m.yaml:1:25: error: unknown key 'lrr'" in err
    assert "m.yaml:3:23: error:" in err
    assert "arena: 2 problems in m.yaml; nothing was changed" in err

    found = alone.json("manifest", "validate", "m.yaml", expect=65)
    places = [(d["file"], d["line"], d["column"], d["code"]) for d in found["diagnostics"]]
    assert ("m.yaml", 1, 25, "unknown-key") in places
    assert (found["valid"], len(places)) == (False, 2)


def test_standard_input_is_read_for_a_dash(alone, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"algorithm: {name: GRPO\n")))
    _, err = alone.both("manifest", "validate", "-", expect=65)
    assert "<stdin>:" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "this file is empty"), ("a: 1\n---\nb: 2\n", "m.yaml:3:1"), ("- a\n", "expected a mapping")],
)
def test_what_is_no_manifest_at_all_is_said_so(alone, text, said):
    (alone.folder / "m.yaml").write_text(text)
    assert said in alone.both("manifest", "validate", "m.yaml", expect=65)[1]


def test_a_file_that_cannot_be_read_is_a_usage_error(alone):
    assert "nowhere.yaml cannot be read" in alone.both("manifest", "validate", "nowhere.yaml", expect=64)[1]


def test_the_schema_is_that_of_manifests(alone):
    assert "algorithm" in json.loads(alone("manifest", "schema"))["properties"]
