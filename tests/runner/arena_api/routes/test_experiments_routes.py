"""Experiments that exist: stopped, resumed, measured."""

from __future__ import annotations

from arena_asks import P


def test_a_stopped_run_is_listed_and_resumes(http, submitted):
    http.post(f"{P}/experiments/jobs/stop", json={"experiment_name": "exp"})
    stopped = http.get(f"{P}/experiments/list").json()[0]
    resumed = http.post(
        f"{P}/experiments/jobs/resume", json={"experiment_name": "exp", "max_steps": 200_000}
    ).json()

    assert stopped["status"] == "stopped"
    assert (resumed["status"], resumed["max_steps"]) == ("queued", 200_000)
    assert resumed["run_id"] == submitted["detail"]["id"]


def test_who_has_stopped_a_run_is_kept_until_it_goes_on(http, submitted):
    run = f"/api/v1/runs/{submitted['detail']['id']}"
    waiting = http.get(run).json()
    http.post(f"{P}/experiments/jobs/stop", json={"experiment_name": "exp"})
    stopped = http.get(run).json()
    http.post(f"{P}/experiments/jobs/resume", json={"experiment_name": "exp", "max_steps": 200_000})
    resumed = http.get(run).json()

    assert [status["stopped_by"] for status in (waiting, stopped, resumed)] == [None, "ada", None]
    assert (waiting["ended"], resumed["ended"]) == (None, None)
    assert stopped["ended"] > 0
    http.post(f"{run}/stop")
    assert http.get(run).json()["stopped_by"] == "ada"


def test_a_run_at_work_is_not_resumed_to_what_it_does_anyway(http, submitted):
    answer = http.post(f"{P}/experiments/jobs/resume", json={"experiment_name": "exp", "max_steps": 10})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "nothing-to-do")


def test_metrics_are_csv_with_a_preview_and_names_without(http, submitted):
    preview = http.get(f"{P}/experiments/metrics?experiment_name=exp&preview_rows=5&project=")
    names = http.get(f"{P}/experiments/metrics?experiment_name=exp")

    assert preview.headers["content-type"].startswith("text/csv")
    assert preview.text == "step,member\n"
    assert names.json() == []


def test_a_metric_that_is_not_there_is_said(http, submitted):
    answer = http.get(f"{P}/experiments/metrics?experiment_name=exp&preview_rows=5&metric=loss")

    assert (answer.status_code, answer.json()["error_code"]) == (422, "unknown-metric")
