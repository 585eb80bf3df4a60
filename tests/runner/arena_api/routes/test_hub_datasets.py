"""Datasets of the hub: searched there, brought in the background, pinned by the run that reads them."""

from __future__ import annotations

import json

import pytest
from arena_asks import MANIFEST, P, make_dataset, submit
from hub import REVISION, hub, parquet

from arena_gitops.spec.wire import ClaimRequest
from arena_runner.server.controllers.imports import ImportsController
from arena_runner.server.services import hub_rows, imports, jobs
from arena_runner.server.settings import Hub, Settings

ROWS = [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(6)]
FILES = {
    "openai/gsm8k": {
        "main/train-0.parquet": parquet(ROWS[:3]),
        "main/train-1.parquet": parquet(ROWS[3:5]),
        "main/test-0.parquet": parquet(ROWS[5:]),
    },
    "team/words": {
        "train-0.jsonl": json.dumps(ROWS[0]).encode(),
        "train-1.jsonl": json.dumps(ROWS[1]).encode(),
    },
    "team/other-columns": {"train.csv": b"prompt,text\na,b\n"},
}
GSM8K = {"hf_dataset_name": "openai/gsm8k", "hf_config": "main", "hf_split": "train"}


@pytest.fixture(scope="module")
def endpoint():
    with hub(FILES) as url:
        yield url


@pytest.fixture
def settings(endpoint):
    return Settings(hub=Hub(endpoint=endpoint, wait_s=0))


def listed(http, name="sums"):
    return http.get(f"{P}/datasets", params={"name": name}).json()[0]


def bring(world):
    ImportsController(world).reconcile()


def test_a_search_asks_the_hub_and_the_most_downloaded_is_first(http):
    make_dataset(http, "registered")

    found = http.get(f"{P}/datasets?name=&search=team").json()

    assert [row["hf_dataset_id"] for row in found] == ["team/words", "team/other-columns"]
    assert found[0]["downloads"] > found[1]["downloads"]


def test_a_dataset_of_the_hub_is_ready_once_its_rows_are_here(world, http):
    made = make_dataset(http, files=(), **GSM8K).json()
    before = listed(http)
    bring(world)

    assert (made["is_ready"], made["status"], before["is_ready"]) == (False, "pending", False)
    assert (listed(http)["is_ready"], listed(http)["status"]) == (True, "ready")
    assert "5 rows, 5 different" in listed(http)["message"]


def test_text_files_of_a_split_are_joined(world, http):
    make_dataset(http, files=(), hf_dataset_name="team/words")
    bring(world)

    assert "2 rows" in listed(http)["message"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"hf_dataset_name": "nobody/nothing"}, "holds no such dataset or revision"),
        ({"hf_dataset_name": "openai/gsm8k", "hf_split": "validation"}, "of split 'validation'"),
        ({"hf_dataset_name": "team/other-columns"}, "no column 'question'"),
    ],
)
def test_what_cannot_be_brought_is_said_and_not_trained_on(world, http, wanted, said):
    make_dataset(http, files=(), **wanted)
    bring(world)

    last = submit(http)[-1]

    assert said in listed(http)["message"]
    assert (last["status"], last["detail"]["error_code"]) == ("failed", "no-rows")
    assert said in last["message"]


def test_creating_again_tries_a_failed_import_again(world, http):
    make_dataset(http, files=(), hf_dataset_name="nobody/nothing")
    bring(world)

    assert make_dataset(http, files=(), hf_dataset_name="nobody/nothing").json()["status"] == "pending"


def test_a_run_waits_for_its_rows_and_pins_them(world, http):
    make_dataset(http, files=(), **GSM8K)
    lines = submit(http)
    ask = ClaimRequest(worker_id="w", tier="local", run_id=lines[-1]["detail"]["id"])

    early = jobs.claim(world, ask)
    bring(world)
    job = jobs.claim(world, ask).job
    http.request("DELETE", f"{P}/datasets/delete", json={"name": "sums"})

    assert any("the run waits for them" in line["message"] for line in lines)
    assert early is None
    assert (job.inputs.dataset.format, job.inputs.dataset.hf.id) == ("parquet", "openai/gsm8k")
    assert world.blobs.has(job.inputs.dataset.digest)


def test_the_reward_is_checked_on_rows_that_are_here(world, http):
    make_dataset(http, files=(), **GSM8K)
    bring(world)

    checks = [line["detail"]["check"] for line in submit(http) if line["kind"] == "check"]

    assert "dataset/sums rows" in checks
    with world.store.read() as session:
        assert hub_rows.find(session, "sums").revision == REVISION


def test_the_work_is_the_same_whether_its_rows_are_here_or_not(world, http):
    make_dataset(http, files=(), **GSM8K)
    first = submit(http)[-1]["detail"]["id"]
    bring(world)

    assert submit(http, MANIFEST)[-1]["detail"]["id"] == first


def test_a_hub_that_does_not_answer_is_said(world, http, monkeypatch):
    monkeypatch.setattr("arena_runner.server.hub.endpoint", lambda _settings: "http://127.0.0.1:9")
    make_dataset(http, files=(), **GSM8K)
    bring(world)

    answer = http.get(f"{P}/datasets?search=x")

    assert (answer.status_code, answer.json()["error_code"]) == (502, "hub-unreachable")
    assert "does not answer" in listed(http)["message"]


def test_an_import_that_fails_of_itself_is_told_once_and_leaves_nothing(world, http, monkeypatch):
    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("arena_runner.server.services.imports.uploads.store", full)
    make_dataset(http, files=(), **GSM8K)
    bring(world)

    assert "No space left on device" in listed(http)["message"]
    assert listed(http)["status"] == "failed"
    assert not list(world.home.root.glob(".hub-*"))


def test_what_a_killed_import_left_is_swept(world):
    (world.home.root / ".hub-old").mkdir()

    imports.sweep(world)

    assert not list(world.home.root.glob(".hub-*"))
