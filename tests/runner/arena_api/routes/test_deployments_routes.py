"""Deployments: what is asked for, and where it answers."""

from __future__ import annotations

import pytest
from arena_asks import P


def test_a_deployment_has_no_address_before_it_serves(http, submitted):
    http.post(
        f"{P}/inference/deploy", json={"experiment_name": "exp", "checkpoint": None, "memoryScope": "user"}
    )

    found = http.get(f"{P}/inference/deployments/one?name=exp&experimentName=").json()

    assert (found["status"], "url" in found) == ("pending", False)
    assert http.get(f"{P}/inference/deployments/list?name=other").json() == []


@pytest.mark.parametrize(
    ("first", "again", "status"),
    [
        (None, None, 200),
        ("organization", None, 200),
        ("organization", "organization", 200),
        ("organization", "user", 409),
        (None, "organization", 409),
        ("galaxy", None, 422),
    ],
)
def test_a_memory_scope_is_chosen_once(http, submitted, first, again, status):
    body = {"experiment_name": "exp", "checkpoint": None}
    made = http.post(f"{P}/inference/deploy", json={**body, "memoryScope": first})
    if made.status_code == 200:
        made = http.post(f"{P}/inference/deploy", json={**body, **({"memoryScope": again} if again else {})})

    assert made.status_code == status, made.text
    if status == 200:
        assert http.get(f"{P}/inference/deployments/one?name=exp").json()["memory_scope"] == (first or "user")


def test_a_checkpoint_rule_nobody_knows_is_refused(http, submitted):
    answer = http.post(f"{P}/inference/deploy", json={"experiment_name": "exp", "checkpoint": "newest"})

    assert (answer.status_code, answer.json()["error_code"]) == (422, "bad-checkpoint")
