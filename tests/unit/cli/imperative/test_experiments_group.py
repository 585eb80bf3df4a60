"""arena experiments, at a real server with scripted workers."""

from __future__ import annotations

import csv
import json
import re

import pytest

SUBMIT = ("experiments", "submit", "grpo.yaml", "--reward-file", "reward.py")


@pytest.fixture
def trained(sums):
    """An experiment that has run to its end; the second time it is only looked up."""
    manifest = (sums.folder / "grpo.yaml").read_text()
    (sums.folder / "grpo.yaml").write_text(re.sub("seed: .*", "seed: 7", manifest))
    out, err = sums.both(*SUBMIT, "--experiment-name", "My Sums", "--wait")
    assert out.startswith("experiment My Sums: completed, run r_")
    return sums, err


def test_a_submission_tells_what_is_checked_and_follows_the_run(trained):
    arena, err = trained
    run = arena.json("experiments", "status", "My Sums")["run_id"]
    for said in ("  ok   reward/reward import", f"Submitted My Sums v1 as run {run}", "My Sums: completed"):
        assert said in err
    again = arena.json(*SUBMIT, "--experiment-name", "My Sums")
    assert again == {
        "experiment_name": "My Sums",
        "run_id": run,
        "version": 1,
        "status": "completed",
        "max_steps": 16,
    }


def test_a_run_is_found_by_the_name_and_by_the_id_of_its_experiment(trained):
    arena, _ = trained
    for name in ("My Sums", "my-sums"):
        assert "experiment/my-sums: completed at step 16/16" in arena("experiments", "status", name)
    assert arena.json("experiments", "status", "My Sums")["state"] == "completed"
    assert arena.json("experiments", "wait", "My Sums")["state"] == "completed"
    assert "segment 0 from iteration 0" in arena("experiments", "logs", "--follow", "My Sums")
    assert "segment 0" in arena.json("experiments", "logs", "My Sums")["log"]
    assert (
        "there is no experiment 'Your Sums'" in arena.both("experiments", "status", "Your Sums", expect=1)[1]
    )


def test_a_log_that_is_followed_ends_with_its_run(sums):
    text = (sums.folder / "grpo.yaml").read_text()
    (sums.folder / "grpo.yaml").write_text(text.replace("max_steps: 16", "max_steps: 160"))
    sums(*SUBMIT, "--experiment-name", "followed")
    assert "segment 0 from iteration 0" in sums("experiments", "logs", "-f", "followed")
    assert sums.json("experiments", "status", "followed")["state"] == "completed"


def test_experiments_and_checkpoints_are_listed(trained):
    arena, _ = trained
    row = next(row for row in arena.json("experiments", "list") if row["name"] == "My Sums")
    assert (row["id"], row["status"], row["step"], row["max_steps"]) == ("my-sums", "completed", 16, 16)
    assert "My Sums" in arena("experiments", "list")

    found = arena.json("experiments", "checkpoints", "My Sums")
    assert [(c["name"], c["best"]) for c in found][-1] == ("step_16/m1", True)
    listed = arena("experiments", "checkpoints", "My Sums")
    assert found[-1]["digest"] in listed
    assert listed.splitlines()[0].split()[:2] == ["STEPS", "NAME"]


def test_metrics_are_a_file_a_table_and_json(trained):
    arena, _ = trained
    out, err = arena.both(
        "experiments", "metrics", "My Sums", "--output-file", "m.csv", "--preview-rows", "1"
    )
    rows = list(csv.DictReader((arena.folder / "m.csv").open()))
    assert f"{len(rows)} rows in m.csv" in err
    assert len(out.splitlines()) == 2

    assert (
        "m.csv exists"
        in arena.both("experiments", "metrics", "My Sums", "--output-file", "m.csv", expect=3)[1]
    )
    arena("experiments", "metrics", "My Sums", "--output-file", "m.csv", "--force")
    only = ("experiments", "metrics", "My Sums", "--metric", "reward/mean")
    assert arena(*only, "--output-file", "-").splitlines()[0] == "step,member,reward/mean"
    assert arena.json(*only)[0] == {"step": 8, "member": 0, "reward/mean": 0.1}
    assert "hp/lr" in arena.json("experiments", "metrics", "My Sums", "--names")
    assert not (arena.folder / "My Sums-metrics.csv").exists()


def test_a_run_is_stopped_and_goes_on(sums):
    (sums.folder / "grpo.yaml").write_text(
        (sums.folder / "grpo.yaml").read_text().replace("max_steps: 16", "max_steps: 160000")
    )
    sums(*SUBMIT, "--experiment-name", "long")
    sums.until(lambda: sums.json("experiments", "status", "long")["step"] > 0)
    _, err = sums.both("experiments", "wait", "long", "--timeout", "0", expect=9)
    assert "it goes on" in err

    assert sums("experiments", "stop", "long").startswith("experiment long: ")
    out, err = sums.both("experiments", "wait", "long", expect=10)
    assert "ended stopped" in err
    assert out.startswith("experiment/long: stopped")

    goal = sums.json("experiments", "status", "long")["step"] + 16
    resumed = sums.json("experiments", "resume", "long", "--max-steps", str(goal))
    assert (resumed["experiment_name"], resumed["max_steps"]) == ("long", 160000)
    sums("experiments", "stop", "long")


def test_a_wrong_manifest_is_told_with_its_place_and_nothing_is_sent(alone):
    (alone.folder / "grpo.yaml").write_text("algorithm:\n  name: GRPO\n  lrr: 1\nenvironment: {name: a}\n")
    _, err = alone.both("experiments", "submit", "grpo.yaml", expect=65)
    assert "grpo.yaml:3:3: error: unknown key 'lrr'" in err
    assert not (alone.folder.parent / "none").exists()  # no server was started for it


def test_what_the_server_refuses_has_its_exit_code(sums):
    (sums.folder / "reward.py").write_text("def reward(question, answer, completion):\n    return 'much'\n")
    _, err = sums.both(*SUBMIT, "--experiment-name", "bad", expect=10)
    assert "reward/reward" in err
    assert "nothing was started" in err
    document = sums.json(*SUBMIT, "--experiment-name", "bad", expect=10)
    assert (document["kind"], document["exit_code"]) == ("arena.error", 10)


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--completion", "4"), "give --reward-file"), (("--timeout", "5m"), "--timeout is for --wait")],
)
def test_options_that_go_together_are_asked_for(alone, options, said):
    (alone.folder / "grpo.yaml").write_text("algorithm: {name: GRPO}\n")
    assert said in alone.both("experiments", "submit", "grpo.yaml", *options, expect=64)[1]


def test_the_default_project_is_submitted_to(sums):
    sums("projects", "create", "Usual")
    sums("projects", "set-default", "Usual")
    sums(*SUBMIT, "--experiment-name", "in-usual")
    assert [row["name"] for row in sums.json("experiments", "list", "--project", "Usual")] == ["in-usual"]


def test_the_manifest_goes_out_as_it_was_written(at_script, scripted):
    text = "algorithm: {name: GRPO, lr: 0.00001}\nenvironment: {name: sums}\ntraining: {max_steps: 1_000}\n"
    network = "network: {pretrained_model_name_or_path: tiny, max_context_length: 128}\n"
    (at_script.folder / "grpo.yaml").write_text(text + network)
    scripted.will((200, b'{"status": "completed", "detail": {"experiment_name": "e", "id": "r"}}\n', {}))
    at_script("experiments", "submit", "grpo.yaml", "--resource-id", "arena-medium", "--num-nodes", "2")

    sent = json.loads(scripted.asked[0].body)
    assert sent["manifest"]["training"] == {"max_steps": 1000}
    assert set(sent["manifest"]) == {"algorithm", "environment", "training", "network"}
    assert (sent["resource_id"], sent["num_nodes"]) == ("arena-medium", 2)
