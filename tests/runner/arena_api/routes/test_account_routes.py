"""The caller, the tiers, and routes that say no."""

from __future__ import annotations

from arena_asks import P


def test_a_missing_field_is_one_text(http):
    answer = http.post(f"{P}/experiments/jobs/stop", json={})

    assert (answer.status_code, answer.json()["detail"]) == (422, "experiment_name: Field required")


def test_capabilities_do_not_exist(http):
    assert http.get(f"{P}/capabilities").status_code == 404


def test_the_caller_is_named_and_the_tiers_priced(http):
    assert http.get("/api/users/current").json()["first_name"] == "ada"
    assert http.get("/api/users/credits").json()["spent"] == 0.0
    assert http.get(f"{P}/resources/list").json()["tiers"]["local"]["price_per_node_hour"] == 1.0
