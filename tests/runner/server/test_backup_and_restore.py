"""A server's home as one file and back, while a run trains; and everything that is wrong with such a file."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest

from arena_runner.server.backup.archive import verified

SECRET_KEY = "secret.key"


def runner(*args, **variables):
    return subprocess.run(
        [sys.executable, "-m", "arena_runner.cli", *map(str, args)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def address(server):
    return {"ARENA_DATABASE_URL": server.database} if server.database else {}


@pytest.fixture
def site(make_server, build):
    """A server that serves one completed run and trains another, which has saved its state."""
    server = make_server(settings={"database": None}).start()
    server.apply("done", build.experiment("done", seed="done"))
    server.apply("chat", build.deployment("done"), kind="deployment")
    slow = build.experiment("slow", seed="slow", steps=48, pause_s=1.0)
    server.slow = server.apply("slow", slow)["run"]["run_id"]
    build.until(lambda: server.resource("deployment/chat")["deployment"]["state"] == "serving", 60)
    build.until(lambda: server.run(server.slow)["step"] >= 16, 60)
    return server


def test_a_backup_made_at_work_is_the_same_platform_elsewhere_and_its_run_goes_on(
    site, make_server, build, databases, tmp_path
):
    made = runner("backup", "--home", site.home, "--to", tmp_path / "b.tar", **address(site))
    assert made.returncode == 0, made.stderr
    before = site.state()
    site.stop(signal.SIGKILL)
    for process in site.processes():
        os.kill(process, signal.SIGKILL)
    with databases.empty(tmp_path / "unused") as url:
        new = make_server("elsewhere")
        shutil.rmtree(new.home, ignore_errors=True)
        new.database = url if databases.kind == "postgresql" else None
        done = runner("restore", tmp_path / "b.tar", "--home", new.home, **address(new))
        assert done.returncode == 0, done.stderr
        assert "1 runs will continue" in done.stdout
        new.start()
        after = new.state()
        assert [r["etag"] for r in after["resources"]] == [r["etag"] for r in before["resources"]]
        assert after["lineage"] != before["lineage"]
        run = new.wait_run(site.slow, timeout_s=60)
        assert (run["state"], run["step"], run["segments"]) == ("completed", 48, 2)
        resumed = [
            e["event"]["resumed_at_iteration"]
            for e in new.events(site.slow)
            if e["event"]["type"] == "started"
        ]
        assert resumed[1] >= 2, "it went on from its resume state"
        build.until(lambda: new.resource("deployment/chat")["deployment"]["state"] == "serving", 60)
        ask = lambda: new.http.post("/i/chat/generate", json={"prompts": ["hi"]})  # noqa: E731
        answer = build.until(lambda: (a := ask()).status_code == 200 and a)
        assert answer.json()["results"][0]["completion"].startswith("chat.r1")
        assert "segment 0 from iteration 0" in new.http.get(f"/api/v1/runs/{site.slow}/logs").text
        new.stop()


@pytest.mark.one_database
def test_what_mlflow_knows_comes_back_with_its_aliases_and_its_files(
    tracking_server, make_server, build, tmp_path
):
    search, alias = "model-versions/search", "registered-models/alias"
    ask = lambda server, path, **query: server.http.get(f"/mlflow/api/2.0/mlflow/{path}", params=query)  # noqa: E731
    versions = lambda server: ask(server, search, filter="name='kept'").json().get("model_versions", [])  # noqa: E731
    run = tracking_server.apply("kept", build.experiment("kept", seed="kept"))["run"]["run_id"]
    tracking_server.wait_run(run)
    build.until(lambda: len(versions(tracking_server)) == 3, 60)
    chosen = {"name": "kept", "alias": "champion", "version": "2"}
    assert tracking_server.http.post(f"/mlflow/api/2.0/mlflow/{alias}", json=chosen).status_code == 200
    variables = address(tracking_server)
    made = runner("backup", "--home", tracking_server.home, "--to", tmp_path / "b.tar", **variables)
    assert made.returncode == 0, made.stderr
    new = make_server("mlflow-elsewhere", mlflow=None)
    shutil.rmtree(new.home, ignore_errors=True)
    assert runner("restore", tmp_path / "b.tar", "--home", new.home).returncode == 0
    new.start()
    build.until(lambda: ask(new, alias, name="kept", alias="champion").status_code == 200, 90)
    assert ask(new, alias, name="kept", alias="champion").json()["model_version"]["version"] == "2"
    assert {v["version"]: v["run_id"] for v in versions(new)} == {
        v["version"]: v["run_id"] for v in versions(tracking_server)
    }


def test_a_backup_holds_neither_key_nor_password_unless_asked(world, tmp_path):
    world.home.settings.write_text(
        "database: postgresql://arena:hush@db/arena  # ours\nlimits: {max_steps: 9}\n"
    )
    assert world.keys
    variables = {"ARENA_DATABASE_URL": world.store.url.render_as_string(hide_password=False)}
    for name, options in (("plain", ()), ("keyed", ("--with-key",))):
        made = runner("backup", "--home", world.home.root, "--to", tmp_path / name, *options, **variables)
        assert made.returncode == 0, made.stderr
        assert (SECRET_KEY in verified(tmp_path / name).files) == bool(options)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        assert b"hush" not in (tmp_path / name).read_bytes()
        with tarfile.open(tmp_path / name) as tar:
            assert b"max_steps: 9" in tar.extractfile("settings.yaml").read()
            kept = tar.extractfile("manifest.json").read()
    assert json.loads(kept)["lineage"] == world.store.lineage()


@pytest.fixture(scope="module")
def backup(tmp_path_factory):
    """A backup of a small home, not to be changed."""
    folder = tmp_path_factory.mktemp("backups")
    program = (
        "import sys; from pathlib import Path; from arena_runner.server.home import Home;"
        "from arena_runner.server.main import open_world; h = Home(Path(sys.argv[1])); h.prepare();"
        "w = open_world(h); w.blobs.put(b'x' * 5000); w.store.close()"
    )
    subprocess.run([sys.executable, "-c", program, str(folder / "home")], check=True)
    made = runner("backup", "--home", folder / "home", "--to", folder / "b.tar")
    assert made.returncode == 0, made.stderr
    return folder / "b.tar"


def refused(source, home, why, code=1):
    there = home.exists()
    done = runner("restore", source, "--home", home)
    assert done.returncode == code, done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert why in line
    assert home.exists() == there, "nothing is written"
    return line


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("what", ["a file", "between files", "before the manifest", "the manifest"])
def test_a_backup_that_was_cut_short_is_refused_and_nothing_is_written(backup, tmp_path, what):
    with tarfile.open(backup) as tar:
        first, *_, manifest = tar.getmembers()
    cut = {
        "a file": first.offset_data + 700,
        "between files": first.offset_data + (first.size // 512 + 1) * 512,
    }
    cut |= {"before the manifest": manifest.offset, "the manifest": manifest.offset_data + manifest.size // 2}
    (tmp_path / "cut.tar").write_bytes(backup.read_bytes()[: cut[what]])
    refused(tmp_path / "cut.tar", tmp_path / "new", "no backup")
    assert [path.name for path in tmp_path.iterdir()] == ["cut.tar"]


def test_a_backup_of_which_one_bit_was_changed_names_the_file(backup, tmp_path):
    with tarfile.open(backup) as tar:
        member = next(m for m in tar if m.name.startswith("blobs/"))
    (tmp_path / "bad.tar").write_bytes(flipped(backup.read_bytes(), member.offset_data + 100))
    line = refused(tmp_path / "bad.tar", tmp_path / "new", "is not what its digest says")
    assert member.name in line
    assert not (tmp_path / "new").exists()


def test_what_is_no_backup_is_refused(tmp_path):
    (tmp_path / "text").write_text("hello")
    refused(tmp_path / "text", tmp_path / "new", "is damaged or no backup")


@pytest.mark.parametrize("name", ["../evil", "/evil", "blobs/../../evil"])
def test_a_file_that_would_land_elsewhere_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    refused(tmp_path / "evil.tar", tmp_path / "new", "is no backup of ours")


def test_a_link_in_a_backup_is_refused(tmp_path):
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        info = tarfile.TarInfo("blobs")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(info)
    refused(tmp_path / "evil.tar", tmp_path / "new", "is no backup of ours")


def test_a_folder_that_holds_something_is_refused(backup, tmp_path):
    (tmp_path / "note").write_text("mine")
    refused(backup, tmp_path, "is not empty")
    assert (tmp_path / "note").read_text() == "mine"


def test_an_empty_folder_is_taken_and_a_restored_home_has_what_the_manifest_says(backup, tmp_path):
    done = runner("restore", backup, "--home", tmp_path)
    assert done.returncode == 0, done.stderr
    for name in verified(backup).files.keys() - {"database.sqlite"}:
        assert (tmp_path / name).is_file()
    assert (tmp_path / "arena.db").is_file()
    assert not [path for path in tmp_path.parent.iterdir() if "restoring" in path.name]


def test_a_backup_never_replaces_another(backup):
    done = runner("backup", "--home", backup.parent / "home", "--to", backup)
    assert done.returncode == 1
    assert "exists already" in done.stderr


def test_what_is_no_home_has_no_backup(tmp_path):
    done = runner("backup", "--home", tmp_path, "--to", tmp_path / "b.tar")
    assert done.returncode == 64
    assert "is no server's home" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_backup_of_one_kind_of_database_is_not_restored_into_another(backup, tmp_path):
    done = runner(
        "restore", backup, "--home", tmp_path / "new", "--database", "postgresql://arena@127.0.0.1:9/x"
    )
    assert done.returncode == 64
    assert "this is a backup of SQLite" in done.stderr


def test_a_postgresql_database_that_holds_something_is_refused(postgres, tmp_path):
    with postgres.world() as used, postgres.database() as empty:
        variables = {"ARENA_DATABASE_URL": used}
        home = tmp_path / "home"
        program = (
            "from arena_runner.server.main import open_world as o; from arena_runner.server.home import Home;"
        )
        program += f"from pathlib import Path; h = Home(Path({str(home)!r})); h.prepare(); o(h)"
        subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | variables)
        made = runner("backup", "--home", home, "--to", tmp_path / "b.tar", **variables)
        assert made.returncode == 0, made.stderr
        again = runner("restore", tmp_path / "b.tar", "--home", tmp_path / "new", **variables)
        assert (again.returncode, "is not empty" in again.stderr) == (1, True)
        assert "hush" not in again.stderr
        assert not (tmp_path / "new").exists()
        missing = runner("restore", tmp_path / "b.tar", "--home", tmp_path / "new")
        assert (missing.returncode, "name a new, empty database" in missing.stderr) == (64, True)
        done = runner("restore", tmp_path / "b.tar", "--home", tmp_path / "new", ARENA_DATABASE_URL=empty)
        assert done.returncode == 0, done.stderr
