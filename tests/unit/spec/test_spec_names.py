"""Addresses, references, checkpoints and digests: how things are named."""

from __future__ import annotations

import pytest

from arena_gitops.spec.checkpoint import Choice
from arena_gitops.spec.digest import canonical_json, fingerprint, sha256_json
from arena_gitops.spec.resource import Address, Ref

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize("text", ["experiment/gsm8k-grpo", "dataset/a"])
def test_an_address_reads_back_as_itself(text):
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["experiment", "thing/a", "dataset/A", "dataset/", "/a", ""])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="expected KIND/NAME"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "floating"), [("gsm8k", True), ("gsm8k@v3", False), (f"gsm8k@{DIGEST}", False)]
)
def test_a_reference_reads_back_as_itself(text, floating):
    ref = Ref.parse(text)

    assert (str(ref), ref.floating) == (text, floating)


@pytest.mark.parametrize("text", ["A", "gsm8k@", "gsm8k@3", "gsm8k@v0", "gsm8k@sha256:12", "@v1"])
def test_what_is_no_reference_is_refused(text):
    with pytest.raises(ValueError, match=r"after @ comes|does not start with"):
        Ref.parse(text)


@pytest.mark.parametrize("text", ["best", "step_20", "step_20/m3", "@champion"])
def test_a_checkpoint_choice_reads_back_as_itself(text):
    choice = Choice.parse(text)

    assert (str(choice), choice.best) == (text, text == "best")


def test_a_choice_that_is_none_says_what_was_expected():
    with pytest.raises(ValueError, match="expected best, step_N, step_N/mK or @alias"):
        Choice.parse("newest")


def test_equal_values_have_equal_digests_however_they_are_written():
    assert sha256_json({"b": 1e-5, "a": 1}) == sha256_json({"a": 1, "b": 0.00001})


def test_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


def test_the_order_of_parents_does_not_matter():
    one, two = fingerprint({"x": 1}, {}), fingerprint({"x": 2}, {})

    assert fingerprint({}, {}, [one, two]) == fingerprint({}, {}, [two, one])


def test_the_run_follows_data_and_parents_alone():
    parent = fingerprint({"rows": 1}, {"description": "a"})
    run = fingerprint({"lr": 1}, {"description": "a"}, [parent]).run

    assert fingerprint({"lr": 1}, {"description": "b"}, [parent]).run == run
    assert fingerprint({"lr": 2}, {"description": "a"}, [parent]).run != run
    assert fingerprint({"lr": 1}, {"description": "a"}, [fingerprint({"rows": 2}, {})]).run != run
