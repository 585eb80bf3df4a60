"""`arena.yaml`."""

from __future__ import annotations

import pytest

from arena_gitops.errors import InvalidDocumentError
from arena_gitops.spec.problems import parse
from arena_gitops.spec.stack import ROOTS, Stack

STACK = {
    "name": "gsm8k-team",
    "project": "gsm8k",
    "targets": {
        "local": {"platform": "local"},
        "prod": {"platform": "http", "url": "https://arena.example.org"},
    },
    "default_target": "local",
    "policy": {"max_credits_per_pr": 100, "tiers": ["arena-medium"], "require_owner": True},
}


def messages(raw):
    with pytest.raises(InvalidDocumentError) as caught:
        parse(Stack, raw)
    return str(caught.value)


def test_the_stack_of_the_design_parses():
    stack = parse(Stack, STACK)

    assert stack.targets["prod"].url == "https://arena.example.org"
    assert stack.policy.max_credits_per_pr == 100
    assert stack.roots == ROOTS
    assert stack.preview.max_steps == 200


def test_a_name_is_enough():
    assert parse(Stack, {"name": "mine"}).targets["local"].platform == "local"


def test_a_default_target_must_exist():
    assert "did you mean 'local'?" in messages({**STACK, "default_target": "locale"})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"platform": "http"}, "needs 'url'"),
        ({"platform": "http", "url": "arena.example.org"}, "targets.local.url"),
        ({"platform": "local", "token": "x"}, "unknown key 'token'"),
        ({}, "'platform' is missing"),
    ],
)
def test_a_wrong_target_is_refused(target, message):
    assert message in messages({**STACK, "targets": {"local": target}})


def test_without_any_target_there_is_nothing_to_apply_to():
    assert "targets" in messages({**STACK, "targets": {}, "default_target": None})
