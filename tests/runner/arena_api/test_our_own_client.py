"""The published tutorial, its eight commands as printed, by our own `arena` against a server that trains for real."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path

import pytest
import tutorial as page

pytestmark = pytest.mark.slow

OURS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def commands(request) -> tuple[str, ...]:
    """As the page prints them today where it is at hand, else the copy of them."""
    folder = Path(os.environ.get("ARENA_SHARED", request.config.rootpath.parent / "shared"))
    published = folder / "reference" / "published" / "arena-tutorial-grpo-gsm8k.txt"
    return page.commands_of(published.read_text()) if published.is_file() else page.COMMANDS


@pytest.fixture(scope="module")
def client(site, tutorial, tmp_path_factory, client_class):
    folder = tmp_path_factory.mktemp("ours")
    tutorial.write(folder)
    names = folder / "bin"
    names.mkdir()
    (names / "arena").symlink_to(OURS / "arena-gitops")  # whoever else has an `arena` here
    environment = {
        "HOME": str(folder),
        "PATH": f"{names}:/usr/bin:/bin",
        "ARENA_BASE_URL": site.url,
        "ARENA_API_KEY": site.token,
        "OMP_NUM_THREADS": "1",
    }
    return client_class(names / "python", folder, environment)


@pytest.fixture(scope="module")
def submitted(client, commands):
    create_dataset, create_project, submit = commands[:3]
    client.sh(create_dataset)
    client.sh(create_project)
    return client.sh(submit)


@pytest.fixture(scope="module")
def completed(client, submitted):
    client.arena("experiments", "wait", "gsm8k-grpo-v1", "--timeout", "100s")
    return json.loads(client.arena("experiments", "status", "gsm8k-grpo-v1", "--json").out)


@pytest.fixture(scope="module")
def deploy(client, commands):
    """Deploy as the page does, and wait until it serves."""

    def deployed():
        client.sh(commands[5])
        told = client.arena("agent", "deploy", "gsm8k-grpo-v1", "--wait", "--timeout", "90s", "--json")
        return json.loads(told.out)

    return deployed


@pytest.fixture(scope="module")
def deployed(deploy, completed):
    return deploy()


def test_the_copy_of_the_commands_is_the_page_of_today(published):
    assert page.commands_of(published) == page.COMMANDS


def test_the_submission_says_what_is_checked_what_is_otherwise_and_the_run(submitted, completed):
    assert f"experiment gsm8k-grpo-v1: queued, run {completed['run_id']}" in submitted.out
    for wanted in ("reward/reward probes", "arena-medium", "2 nodes", "after 48 of the 100000", "tiny-llama"):
        assert wanted in submitted.text


def test_the_run_ends_completed_at_the_servers_limit(completed):
    assert (completed["state"], completed["message"]) == ("completed", "capped at 48 of 100000")


def test_metrics_arrive_as_a_csv_file(client, commands, completed):
    client.sh(commands[3])
    rows = list(csv.DictReader((client.folder / "metrics.csv").open()))
    assert {row["member"] for row in rows} >= {"0", "1"}
    assert any(row["reward/mean"] for row in rows)


def test_checkpoints_are_listed_whole(client, commands, completed):
    shown = client.sh(commands[4]).out
    assert completed["best"]["digest"] in shown
    assert f"step_{completed['step']}/m" in shown


def test_the_best_checkpoint_is_deployed_then_another_and_it_answers(client, commands, deployed):
    assert deployed["checkpoint"] == "best"
    assert "rule step_500" in client.sh(commands[6]).out
    assert client.sh(commands[7]).out.strip()


def test_the_log_is_that_of_the_worker(client, completed):
    assert client.arena("experiments", "logs", "gsm8k-grpo-v1").out


def test_a_conversation_is_begun_read_and_ended(client, deployed):
    client.arena("agent", "run", "gsm8k-grpo-v1")
    begun = client.arena(
        "agent", "generate", "--new-session", "--prompt", "1+1?", "--max-new-tokens", "4", "--json"
    )
    session = json.loads(begun.out)["session_id"]
    client.arena("agent", "generate", "--prompt", "2+2?", "--max-new-tokens", "4")

    said = json.loads(client.arena("agent", "sessions", "get", session, "--json").out)["messages"]
    assert [turn["content"] for turn in said if turn["role"] == "user"] == ["1+1?", "2+2?"]
    client.arena("agent", "sessions", "delete", session, "--yes")
    assert json.loads(client.arena("agent", "sessions", "list", "--json").out) == []


def test_what_is_undeployed_answers_no_more_until_it_is_deployed_again(client, deployed, deploy):
    ask = ("agent", "generate", "gsm8k-grpo-v1", "--prompt", "1+1?")
    client.arena("agent", "undeploy", "gsm8k-grpo-v1", "--yes")
    assert client.arena(*ask, expect=1).out == ""
    assert deploy()["url"]
    assert client.arena(*ask).out
