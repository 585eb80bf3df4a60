"""Laws of the manifest: the normal form is a fixed point, and one meaning has one normal form."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from arena_gitops.spec.manifest import Manifest, ManifestError, parse_manifest
from arena_gitops.spec.schema import schemas

MANIFESTS = Draft202012Validator(schemas()["manifest"])
positive = st.integers(1, 50)
share = st.floats(0, 1, allow_nan=False)
ALGORITHM = st.fixed_dictionaries(
    {"name": st.sampled_from(["GRPO", "SFT", "grpo", "DPO", "GSPO"])},
    optional={
        "batch_size": positive,
        "lr": st.floats(1e-8, 1e-1),
        "max_grad_norm": share,
        "update_epochs": positive,
        "use_vllm": st.booleans(),
        "vllm_config": st.fixed_dictionaries(
            {}, optional={"max_num_seqs": positive, "sleep_mode": st.booleans()}
        ),
        "seed": st.integers(0, 9),
    },
)
GRPO_ONLY = st.fixed_dictionaries(
    {},
    optional={
        "group_size": st.integers(2, 16),
        "beta": share,
        "clip_coef": st.one_of(share, st.tuples(share, share).map(list)),
        "temperature": st.floats(0.1, 2),
        "use_bias_correction_kl": st.booleans(),
        "top_k": st.integers(0, 50),
    },
)
TRAINING = st.fixed_dictionaries(
    {"max_steps": st.integers(100, 10_000)},
    optional={
        "evo_steps": positive,
        "pop_size": positive,
        "hpo": st.booleans(),
        "target_score": st.none() | share,
        "num_epochs": positive,
        "checkpoint_path": st.text(max_size=5),
    },
)
MUTATION = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "rand_seed": st.integers(0, 99),
        "mutation_sd": share,
        "probabilities": st.dictionaries(st.sampled_from(["no_mut", "rl_hp_mut", "arch_mut"]), share),
    },
)
SELECTION = st.none() | st.fixed_dictionaries(
    {}, optional={"tournament_size": positive, "elitism": st.booleans()}
)


@st.composite
def manifests(draw):
    algorithm = draw(ALGORITHM)
    if algorithm["name"].upper() == "GRPO":
        algorithm |= draw(GRPO_ONLY)
    return {
        "algorithm": algorithm,
        "environment": draw(
            st.fixed_dictionaries({}, optional={"name": st.just("sums"), "max_reward": share})
        ),
        "training": draw(TRAINING),
        "mutation": draw(MUTATION),
        draw(st.sampled_from(["selection", "tournament_selection", "selection_strategy"])): draw(SELECTION),
        "network": {
            "pretrained_model_name_or_path": "someone/tiny",
            "max_context_length": draw(st.integers(8, 512)),
            "lora_config": draw(
                st.fixed_dictionaries({}, optional={"lora_r": positive, "lora_dropout": share})
            ),
        },
    }


@settings(max_examples=150, deadline=None)
@given(manifests())
def test_the_normal_form_is_a_fixed_point_and_plain_json(raw):
    manifest = parse_manifest(raw).manifest

    normal = json.loads(json.dumps(manifest.normal()))

    assert Manifest.from_normal(normal) == manifest
    assert Manifest.from_normal(normal).normal() == normal


@settings(max_examples=150, deadline=None)
@given(manifests())
def test_nothing_that_was_written_is_lost(raw):
    parsed = parse_manifest(raw)
    normal = parsed.manifest.normal()
    moved = {"name", "use_bias_correction_kl", "clip_coef"}

    for section in ("algorithm", "training"):
        for key, value in raw[section].items():
            assert key in moved or normal[section][key] == value


@settings(max_examples=100, deadline=None)
@given(manifests())
def test_the_order_of_keys_means_nothing(raw):
    shuffled = {key: raw[key] for key in reversed(raw)}
    shuffled["algorithm"] = {key: raw["algorithm"][key] for key in reversed(raw["algorithm"])}

    assert parse_manifest(shuffled).manifest == parse_manifest(raw).manifest


@settings(max_examples=100, deadline=None)
@given(manifests())
def test_numbers_as_text_mean_the_same(raw):
    text = {**raw, "training": {key: _as_text(value) for key, value in raw["training"].items()}}

    assert parse_manifest(text).manifest == parse_manifest(raw).manifest


@settings(max_examples=100, deadline=None)
@given(manifests(), st.dictionaries(st.text(max_size=4), st.none() | st.integers() | st.text(max_size=3)))
def test_any_document_is_read_or_refused_with_problems(raw, noise):
    """Never another exception, whatever stands in the file."""
    for document in (noise, {**raw, **noise}, {**raw, "algorithm": {**raw["algorithm"], **noise}}):
        assert _problems(document) >= 0


def _problems(document):
    """How many problems; any exception but ManifestError fails the test."""
    try:
        parse_manifest(document)
    except ManifestError as error:
        return len(error.problems) or -1
    return 0


def _as_text(value):
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@given(manifests())
@settings(max_examples=60, deadline=None)
def test_what_is_read_as_a_manifest_is_one_for_an_editor(raw):
    """The other way round it is not: what two fields must have in common is beyond a schema."""
    try:
        parse_manifest(raw)
    except ManifestError:
        return
    assert [error.message for error in MANIFESTS.iter_errors(raw)] == []
