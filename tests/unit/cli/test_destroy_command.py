"""`arena destroy` and the streams of `arena apply`, from the command line, against a real server."""

from __future__ import annotations

import json

import pytest
from infra_repo import FILES, InfraRepo
from real_server import real_server

from arena_gitops.cli.main import run

FILES = {**FILES, "rewards/exact.py": "def reward(question, answer, completion):\n    return 0.5\n"}
REWARD = "reward/exact"
SMALL = {name: FILES[name] for name in ("arena.yaml", "experiments/project.yaml", "rewards/exact.py")}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with real_server(tmp_path_factory.mktemp("destroy") / "server") as found:
        yield found


@pytest.fixture
def arena(tmp_path, monkeypatch, capsys, server):
    """`arena("plan", …, expect=0)` in a small repository; gives stdout."""
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (server.environment | {"HOME": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    repo = InfraRepo.make(tmp_path / "infra", SMALL)
    monkeypatch.chdir(repo.root)

    def call(*args, expect=0):
        code = run(args)
        out, err = capsys.readouterr()
        assert code == expect, f"exit {code}\n{out}\n{err}"
        return out

    call.root = repo.root
    call("apply", "--yes", "--json-into", "applied.json", "--allow-dirty")
    yield call
    call("destroy", "--yes", "--purge", "--allow", "removals")


def test_destroy_plans_asks_and_leaves_nothing(arena, capsys):
    assert run(["destroy"]) == 64
    assert "--yes, --expect-plan sha256:…, or -o FILE" in capsys.readouterr().err
    planned = json.loads(arena("destroy", "-o", "destroy.json", "--json"))
    assert (planned["mode"], planned["summary"]["retire"]) == ("destroy", 2)
    assert json.loads((arena.root / "destroy.json").read_text()) == planned
    arena("destroy", "--expect-plan", "sha256:another", expect=4)
    arena("apply", "destroy.json")
    assert "2 to create" in arena("plan")
    assert "Nothing to destroy" in arena("destroy", "--yes")


def test_destroy_takes_names_and_says_what_came_of_it(arena):
    out = arena("destroy", REWARD, "--yes")
    assert f"{REWARD}  retired" in out
    assert "the repository still declares reward/exact" in out
    assert "1 to create" in arena("plan")
    done = json.loads(arena("destroy", "--select", "project/maths", "--purge", "--yes", "--json"))
    assert [(s["address"], s["action"]) for s in done["steps"]] == [("project/maths", "destroy")]
    arena("destroy", "reward/nothing", "--yes", expect=64)


def test_what_is_protected_is_not_destroyed(arena):
    name = "experiments/project.yaml"
    (arena.root / name).write_text(SMALL[name] + "lifecycle: {protect: true}\n")
    arena("apply", "--yes", "--allow-dirty")
    assert "lifecycle.protect" in arena("destroy", "--yes", expect=3)
    (arena.root / name).write_text(SMALL[name])
    arena("apply", "--yes", "--allow-dirty")


def test_an_apply_as_a_stream_is_its_document_in_parts(arena):
    (arena.root / "rewards" / "exact.py").write_text(FILES["rewards/exact.py"].replace("0.5", "0.75"))
    out = arena("apply", "--yes", "--allow-dirty", "--events", "ndjson", "--json-into", "applied.json")
    lines = [json.loads(line) for line in out.splitlines()]
    kinds = [line["type"] for line in lines]
    assert (kinds[0], kinds[-1]) == ("plan", "end")
    assert {"uploaded", "step_started", "step"} <= set(kinds)
    document = json.loads((arena.root / "applied.json").read_text())
    assert [s["address"] for s in document["steps"]] == [x["address"] for x in lines if x["type"] == "step"]
    assert lines[-1]["error"] is None
    arena("apply", "--yes", "--json", "--events", "ndjson", expect=64)


def test_an_error_of_a_stream_is_a_line_of_it(arena):
    (arena.root / "arena.yaml").write_text("name: [\n")
    try:
        (line,) = arena("apply", "--yes", "--events", "ndjson", expect=65).splitlines()
        assert (json.loads(line)["type"], json.loads(line)["exit_code"]) == ("error", 65)
    finally:
        (arena.root / "arena.yaml").write_text(SMALL["arena.yaml"])


def test_strict_serial_refuses_a_plan_once_anything_was_written(arena):
    (arena.root / "rewards" / "exact.py").write_text(FILES["rewards/exact.py"].replace("0.5", "0.25"))
    arena("plan", "-o", "plan.json")
    (arena.root / "experiments" / "project.yaml").write_text("kind: Project\nname: maths\ndescription: new\n")
    arena("apply", "--yes", "--allow-dirty", "--select", "project/maths")
    arena("apply", "plan.json", "--allow-dirty", "--strict-serial", expect=4)
    arena("apply", "plan.json", "--allow-dirty")
