"""Rows that are not there and hubs that say no: warnings and ends that people can act on."""

import pytest
from hub import hub, parquet

from arena_gitops.spec.job import HubDataset, Log, ModelRef
from arena_runner.data import DataError
from arena_runner.faults import OutsideError
from arena_runner.hub_silence import unanswered
from arena_runner.models import ModelError, resolve
from arena_runner.ports import Materials
from arena_runner.rollouts.hub import fetch_split
from arena_runner.server.summary import WARNINGS, Summary, fold
from arena_runner.train import train

pytest_plugins = ("loopback",)
ROWS = {"train-0.parquet": parquet([{"question": "q", "answer": "a"}])}


@pytest.fixture
def loopback(monkeypatch, tmp_path):
    """The hub of this test; asked for with a cache of its own."""
    with hub({"someone/sums": ROWS}) as url:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield url


def test_a_dataset_the_hub_has_not_is_for_the_user_to_mend(loopback):
    with pytest.raises(DataError, match=r"dataset someone/sumz: the hub answers 404: .* check `hf\.id`"):
        fetch_split(HubDataset(id="someone/sumz"))


def test_a_revision_the_hub_has_not_is_named(loopback):
    with pytest.raises(DataError, match=r"someone/sums at revision 0{40}: "):
        fetch_split(HubDataset(id="someone/sums", revision="0" * 40))


def test_a_name_that_is_none_is_refused_in_words(loopback):
    with pytest.raises(DataError, match=r"expected owner/name in `hf\.id`"):
        fetch_split(HubDataset(id="a//b"))


def test_a_run_whose_dataset_the_hub_has_not_fails_as_the_users_fault_without_a_retry(lab, loopback):
    job = lab.job("GRPO")
    dataset = job.inputs.dataset.model_copy(update={"digest": None, "hf": HubDataset(id="someone/sumz")})
    job = job.model_copy(update={"inputs": job.inputs.model_copy(update={"dataset": dataset})})
    materials = Materials(workdir=lab.folder / "run", reward=lab.folder / "reward")
    ended = train(job, materials, lab.ports())
    assert (ended.state, ended.reason) == ("failed", "user_code")
    assert "the hub answers 404" in ended.message


def test_a_model_on_a_hub_that_does_not_answer_is_nobodys_fault(lab, monkeypatch, tmp_path):
    """Neither the author's nor the worker's: the server lets the run go on later, and says why it waits."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    job = lab.job("GRPO").model_copy(update={"model": ModelRef(id="someone/model")})
    rows, reward = lab.folder / "rows.jsonl", lab.folder / "reward"
    ended = train(job, Materials(lab.folder / "run", (rows,), reward), lab.ports())
    assert (ended.state, ended.reason) == ("failed", "infra"), ended.message
    assert ended.message.startswith("model 'someone/model' is not a folder, not in ")


@pytest.mark.parametrize(("status", "passes"), [(500, True), (404, False), (403, False)])
def test_a_hub_says_no_or_nothing(scripted, monkeypatch, tmp_path, status, passes):
    scripted.will((status, b"", {}))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", scripted.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelError) as caught:
        resolve("someone/model", models_dir=tmp_path)
    assert isinstance(caught.value, OutsideError) == passes
    assert unanswered(caught.value.__cause__) == passes  # which rows of the hub are judged by, too


def test_a_run_says_what_it_cut(lab):
    """Of the lab's forty rows."""
    job = lab.job("GRPO", training={"max_steps": 8, "eval_rows": 64, "test_rows": 12})
    told = [e.message for e in lab.run(job).of("log") if e.level == "warning"]
    assert told == ["eval_rows 64: only 14 of 40 different questions are held out for it"]


def test_warnings_are_kept_once_each_and_not_without_end():
    summary = Summary()
    for n in [0, 0, *range(WARNINGS + 5)]:
        summary = fold(summary, Log(level="warning", message=f"w{n}"))
    summary = fold(summary, Log(level="info", message="no warning"))
    assert summary.warnings == tuple(f"w{n}" for n in range(WARNINGS))
