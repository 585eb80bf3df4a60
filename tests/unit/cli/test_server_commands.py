"""Commands that ask a server something, against a scripted one on loopback."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest

from arena_gitops.cli.main import run
from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.job import MemberStatus, RunState, RunStatus
from arena_gitops.spec.wire import DeploymentStatus, Owner, ResourceDocument, StateDocument

TEXT = {"Content-Type": "text/plain; charset=utf-8"}
RUNNING = RunStatus(
    run_id="r_1",
    experiment="gsm8k-grpo",
    fingerprint="f",
    state=RunState.RUNNING,
    max_steps=128,
    step=32,
    members=(MemberStatus(member=0, step=32, eta_seconds=90),),
)
SERVING = DeploymentStatus(
    state="serving", revision=1, run_id="r_1", checkpoint="step_32/m0", url="http://x/i/gsm8k"
)


def document(kind: str, name: str, **fields: object) -> ResourceDocument:
    return ResourceDocument(
        kind=kind,
        name=name,
        etag="e",
        owner=Owner(stack="team"),
        spec={},
        fingerprint=fingerprint({}, {}),
        **fields,
    )


def state(*documents: ResourceDocument) -> bytes:
    return (
        StateDocument(platform="http", version="0.1.0", lineage="L", etag="s", resources=documents)
        .model_dump_json()
        .encode()
    )


FULL = state(
    document("deployment", "gsm8k", deployment=SERVING),
    document("experiment", "gsm8k-grpo", run=RUNNING),
    document("project", "gsm8k"),
)


@pytest.fixture
def arena(scripted, monkeypatch, capsys, tmp_path):
    """Run a command at the scripted server, standing in a repository of stack `team` whose files are broken."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "arena.yaml").write_text("name: team\n")
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "half.yaml").write_text("kind: Datas\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("ARENA_BASE_URL", scripted.url)
    monkeypatch.setenv("ARENA_API_KEY", "key")

    def call(*args: str) -> tuple[int, str, str]:
        code = run(args)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_status_tells_runs_and_deployments_while_files_are_being_edited(arena, scripted):
    scripted.will((200, FULL, {}))
    code, out, _ = arena("status")
    assert code == 0
    assert out.splitlines() == [
        "deployment/gsm8k: serving step_32/m0 of run r_1, revision 1 at http://x/i/gsm8k",
        "experiment/gsm8k-grpo v1: running at step 32/128, 1m 30s left, run r_1",
    ]
    assert scripted.asked[0].headers["authorization"] == "Bearer key"


def test_status_of_nothing_says_so(arena, scripted):
    scripted.will((200, state(), {}))
    assert arena("status")[1] == "stack team has no runs and no deployments here\n"


def test_status_as_json_holds_every_resource(arena, scripted):
    scripted.will((200, FULL, {}))
    found = json.loads(arena("status", "--json")[1])
    assert [resource["name"] for resource in found["resources"]] == ["gsm8k", "gsm8k-grpo", "gsm8k"]


def test_a_prompt_is_answered_on_stdout_with_a_newline_at_its_end(arena, scripted):
    scripted.will((200, b"It is 7.", TEXT))
    code, out, _ = arena(
        "agent", "generate", "gsm8k", "--prompt", "3+4?", "--max-new-tokens", "9", "--temperature", "0"
    )
    assert (code, out) == (0, "It is 7.\n")
    assert json.loads(scripted.asked[0].body) == {
        "prompt": "3+4?",
        "params": {"max_new_tokens": 9, "temperature": 0.0, "do_sample": False},
    }


def test_a_prompt_can_come_from_standard_input(arena, scripted, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a long prompt"))
    scripted.will((200, b"ok\n", TEXT))
    assert arena("agent", "generate", "gsm8k", "--prompt", "-", "--json")[1] == (
        '{"deployment":"gsm8k","prompt":"a long prompt","completion":"ok\\n","session_id":null}\n'
    )


def test_a_run_is_shown_stopped_and_its_log_printed(arena, scripted):
    scripted.will((200, RUNNING.model_dump_json().encode(), {}))
    assert "running at step 32/128" in arena("runs", "show", "r_1")[1]
    assert json.loads(arena("runs", "show", "r_1", "--json")[1])["run_id"] == "r_1"
    assert "run r_1: running, stopping" in arena("runs", "stop", "r_1")[2]
    assert json.loads(arena("runs", "stop", "r_1", "--json")[1])["state"] == "running"
    scripted.will((200, b"loading\n", TEXT))
    assert arena("runs", "logs", "r_1")[1] == "loading\n"


def test_a_log_is_followed_until_the_run_has_ended(arena, scripted):
    ended = RUNNING.model_copy(update={"state": RunState.COMPLETED}).model_dump_json().encode()
    running = RUNNING.model_dump_json().encode()
    scripted.will(
        (200, running, {}),
        (200, "one é".encode()[:-1], TEXT),  # a character that is half there
        (200, ended, {}),
        (200, "é\ntwo\n".encode()[1:], TEXT),
        (500, b"", {}),
    )
    assert arena("runs", "logs", "--follow", "r_1")[:2] == (0, "one é\ntwo\n")
    assert [a.path for a in scripted.asked if "logs" in a.path] == [
        "/api/v1/runs/r_1/logs",
        "/api/v1/runs/r_1/logs?after=5",
    ]


def test_an_unknown_run_is_the_servers_own_message(arena, scripted):
    scripted.will((404, b'{"code": "not-found", "message": "run r_9 does not exist on this server"}', {}))
    code, _, err = arena("runs", "show", "r_9")
    assert (code, err) == (1, "arena: run r_9 does not exist on this server\n")


def test_a_server_can_be_used_outside_of_any_repository(arena, scripted, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    scripted.will((200, RUNNING.model_dump_json().encode(), {}))
    assert arena("runs", "show", "r_1")[0] == 0


def test_without_a_local_server_there_is_nothing_to_ask(arena, monkeypatch, tmp_path):
    monkeypatch.delenv("ARENA_BASE_URL")
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "none"))
    code, _, err = arena("runs", "show", "r_1")
    assert (code, "nothing has been applied on this machine" in err) == (1, True)
    assert not (tmp_path / "none").exists()


def test_a_valid_repository_is_counted_and_its_notes_are_told(arena, tmp_path):
    assert arena("validate")[0] == 65
    (tmp_path / "datasets" / "half.yaml").unlink()
    (tmp_path / "arena.yaml").write_text("name: team\n---\nkind: Project\nname: gsm8k\nllm_based: true\n")
    assert arena("validate")[:2] == (0, "valid: 1 resource of stack team\n")
    found = json.loads(arena("validate", "--json")[1])
    assert (found["valid"], found["resources"]) == (True, ["project/gsm8k"])


def test_the_committed_schemas_are_those_the_command_writes(arena, tmp_path):
    """When this fails: make schemas."""
    assert arena("schema", "--all", str(tmp_path))[0] == 0
    committed = Path(__file__).resolve().parents[3] / "schemas"

    assert {f.name: f.read_text() for f in committed.glob("*.schema.json")} == {
        f.name: f.read_text() for f in tmp_path.glob("*.json")
    }


def test_schemas_are_printed_by_kind(arena):
    assert json.loads(arena("schema", "Experiment")[1])["title"] == "experiment"
    assert "plan_id" in json.loads(arena("schema", "plan")[1])["properties"]
    code, _, err = arena("schema", "experimnt")
    assert (code, "did you mean 'experiment'" in err) == (64, True)


def test_the_last_lines_of_the_servers_log_are_printed(arena, monkeypatch, tmp_path):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    code, _, err = arena("server", "logs")
    assert (code, "there is no log" in err) == (1, True)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_text("one\ntwo\nthree\n")
    assert arena("server", "logs", "-n", "2")[1] == "two\nthree\n"
    assert arena("server", "logs", "-n", "0")[1] == ""
    assert "no local server runs" in arena("server", "stop")[2]
