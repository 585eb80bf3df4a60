"""arena env: what is sent and how answers are told, at a scripted server."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile

import pytest
from archives import MERGE

from arena_gitops.cli.imperative.archive import pack
from arena_gitops.errors import UsageError


def stream(*lines: dict) -> tuple:
    return (200, b"".join(json.dumps(line).encode() + b"\n" for line in lines), {})


def check(name: str, **result) -> dict:
    return {"kind": "check", "message": name, "detail": {"check": name, "result": result}}


def done(**detail) -> dict:
    return {"kind": "status", "status": "completed", "message": "done", "detail": detail}


@pytest.fixture
def source(at_script):
    folder = at_script.folder / "merge-env"
    (folder / "maps").mkdir(parents=True)
    (folder / "env.py").write_text("class MergeEnv: ...\n")
    (folder / "maps" / "one.txt").write_text("....\n")
    (folder / "requirements.txt").write_text("numpy\n")
    (folder / ".env").write_text("TOKEN=secret\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "env.pyc").write_bytes(b"\0")
    (folder / "out").symlink_to("/etc")
    return folder


def names_in(packed) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        return archive.getnames()


def test_a_folder_becomes_the_same_archive_twice_without_what_is_hidden(source):
    packed = pack(source)
    assert names_in(packed) == ["env.py", "maps/one.txt", "requirements.txt"]
    assert packed.name == "merge-env.tar.gz"
    (source / "env.py").touch()
    assert pack(source) == packed
    assert names_in(pack(source / "env.py")) == ["env.py"]
    archive = source.parent / "made.tar.gz"
    archive.write_bytes(packed.content)
    assert pack(archive).content == packed.content


RULES = {
    "names, folders, a comment": ("*.log\ndata/\n# code is kept\n", "!keep.log\n"),
    "from the top, at any depth": ("/env.py\n**/runs\n", ""),
    "taken back": ("d*/*\n!deep/env.py\n", "!runs\n"),
    "classes of letters": ("[!ed]*\ndee?/k*\n", ""),
    "everything below": ("deep/**\n", ""),
}


@pytest.mark.parametrize("case", RULES)
def test_what_ignore_files_name_stays_at_home_as_git_understands_them(tmp_path, case):
    for name in ("env.py", "a.log", "data/rows", "deep/env.py", "deep/keep.log", "deep/runs/1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    top, below = RULES[case]
    (tmp_path / ".gitignore").write_text(top)
    (tmp_path / "deep" / ".gitignore").write_text(below)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    listed = ["git", "-C", tmp_path, "ls-files", "--others", "--exclude-standard"]
    told = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    expected = [name for name in told if not name.endswith(".gitignore")]

    assert sorted(names_in(pack(tmp_path))) == sorted(expected)
    (tmp_path / ".gitignore").rename(tmp_path / ".arenaignore")
    assert sorted(names_in(pack(tmp_path))) == sorted(expected)


def test_a_folder_of_nothing_is_no_environment(tmp_path):
    with pytest.raises(UsageError, match="holds no files"):
        pack(tmp_path)


def test_code_is_registered_and_every_verdict_is_told(at_script, scripted, source):
    told = [check("import", success=True), check("step", success=True, warnings=["slow"]), done(version="v1")]
    scripted.will(stream(*told))
    options = ("--source", "merge-env", "--entrypoint", "env:MergeEnv", "--multi-agent")
    out, err = at_script.both("env", "validate", "merge", *options)

    assert out == "environment merge: valid\n"
    for line in ("  ok   import", "  warn step: slow", "  version: v1"):
        assert line in err.splitlines()
    sent = scripted.asked[0].body
    for part in (
        b'name="multi_agent"\r\n\r\ntrue',
        b'filename="merge-env.tar.gz"',
        b"numpy",
        b"env:MergeEnv",
    ):
        assert part in sent
    assert b'name="env_config"; filename="env_config.txt"' in sent  # always there, empty


def test_a_registered_version_is_validated_and_profiled(at_script, scripted):
    scripted.will(stream(done(version="v2")))
    assert at_script.json("env", "validate", "merge", "--version", "v2", "--do-rollouts") == {"version": "v2"}
    assert json.loads(scripted.asked[0].body) == {"name": "merge", "version": "v2", "do_rollouts": True}
    scripted.will(stream(done(steps_per_second=1234.5)))
    out, err = at_script.both("env", "profile", "merge")
    assert (out, "  steps per second: 1,234.5" in err) == ("environment merge: profiled\n", True)


def test_a_failed_validation_is_an_error_with_the_failed_check(at_script, scripted):
    failed = {
        "kind": "status",
        "status": "failed",
        "message": "2 of 3 failed",
        "detail": {"error_code": "check-failed"},
    }
    scripted.will(stream(check("reset", success=False, error="no observation"), failed))
    _, err = at_script.both("env", "validate", "merge", expect=10)
    assert "  FAIL reset: no observation" in err
    assert "arena: 2 of 3 failed" in err


def test_environments_are_listed_looked_up_copied_and_deleted(at_script, scripted):
    scripted.will((200, b'{"merge": {"v1": {"validated": true, "profiled": false}}}', {}))
    assert at_script("env", "list").splitlines()[1].split() == ["merge", "v1", "yes", "no"]
    assert scripted.asked[-1].path.endswith("/environments?include_arena=false")
    scripted.will((200, b'["env:MergeEnv"]', {}))
    assert at_script("env", "entrypoints", "merge") == "env:MergeEnv\n"
    scripted.will((200, b'{"exists": false}', {}))
    assert at_script.json("env", "exists", "merge", "--version", "v9", expect=1) == {
        "exists": False,
        "id": None,
    }
    scripted.will((200, b'{"source_version": "v1"}', {}))
    assert at_script("env", "duplicate", "merge", "v2") == "environment merge: v2 is a copy of v1\n"
    scripted.will((200, b"{}", {}))
    at_script("env", "delete", "merge", "--version", "v2", "--yes")
    assert json.loads(scripted.asked[-1].body) == {"name": "merge", "version": "v2"}


def test_an_environment_goes_its_way_at_a_real_server(arena):
    folder = arena.folder / "merge-env"
    folder.mkdir()
    (folder / "merge.py").write_text(MERGE)
    out, err = arena.both("env", "validate", "merge-env", "--source", "merge-env")
    assert out == "environment merge-env: valid\n"
    assert "  ok   environment/merge-env library check" in err
    assert arena("env", "entrypoints", "merge-env") == "merge:MergeEnv\n"
    assert arena.json("env", "profile", "merge-env")["steps_per_second"] > 0
    assert arena("env", "duplicate", "merge-env", "v2") == "environment merge-env: v2 is a copy of v1\n"
    assert [row["version"] for row in arena.json("env", "list", "--name", "merge-env")] == ["v1", "v2"]
    arena("env", "delete", "merge-env", "--version", "v1", "--yes")
    assert arena("env", "exists", "merge-env", "--version", "v1", expect=1) == "does not exist\n"
    assert arena("env", "exists", "merge-env") == "exists\n"

    (folder / "merge.py").write_text(
        MERGE + "\n\nclass Other(MergeEnv):\n    pass\n\n\nclass Third(MergeEnv):\n    pass\n"
    )
    _, err = arena.both("env", "validate", "several", "--source", "merge-env", expect=64)
    assert "choose one by --entrypoint; there are merge:Other, merge:Third" in err
    arena("env", "delete", "merge-env", "--yes")
