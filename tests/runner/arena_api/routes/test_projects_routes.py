"""Projects: created once, listed, deleted."""

from __future__ import annotations

from arena_asks import P, make_dataset, submit


def test_a_project_keeps_the_name_people_gave_it(http):
    http.post(f"{P}/projects/create", json={"name": "GSM8K Tutorial", "description": None, "llm_based": True})

    rows = http.get(f"{P}/projects").json()

    assert rows == [{"name": "GSM8K Tutorial", "type": "llm", "description": "", "id": "gsm8k-tutorial"}]


def test_creating_a_project_again_changes_nothing(http):
    body = {"name": "P", "description": None, "llm_based": True}

    assert (
        http.post(f"{P}/projects/create", json=body).json()
        == http.post(f"{P}/projects/create", json=body).json()
    )


def test_two_names_of_one_address_are_refused(http):
    http.post(f"{P}/projects/create", json={"name": "My Project"})

    answer = http.post(f"{P}/projects/create", json={"name": "my-project"})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "name-taken")


def test_a_project_is_deleted_by_a_body_on_delete(http):
    http.post(f"{P}/projects/create", json={"name": "P"})

    assert http.request("DELETE", f"{P}/projects/delete", json={"name": "P"}).status_code == 200
    assert http.get(f"{P}/projects").json() == []


def test_a_project_with_a_run_at_work_is_not_deleted(http):
    http.post(f"{P}/projects/create", json={"name": "P"})
    make_dataset(http)
    submit(http, project="P")

    answer = http.request("DELETE", f"{P}/projects/delete", json={"name": "P"})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "busy")
