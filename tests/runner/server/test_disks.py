"""Disks that are full or read-only: one clear error each, nothing half stored, and on it goes when there is room.

The small disk is a file system in memory, which only root may mount; everybody else has a file size limit.
"""

import errno
import hashlib
import os
import resource
import sqlite3
import subprocess
import sys
import time

import psycopg.errors
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from arena_runner.server.faults import fault_of

ROOT = os.getuid() == 0
MAPPING = '{"question": "question", "answer": "answer"}'
FULL = "the server's disk is full; nothing was stored"
CLOSED = "the server's disk is read-only for it; nothing was stored"


def run(*command, **variables):
    return subprocess.run(
        [sys.executable, "-c", f"from {command[0]} import main; main()", *map(str, command[1:])],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Disk:
    """A file system of a few megabytes."""

    def __init__(self, folder):
        self.folder, self.ballast = folder, folder / "ballast"

    def fill(self):
        with self.ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            self._grow(file)

    @staticmethod
    def _grow(file):
        while True:
            file.write(b"\0" * 4096)

    def free(self):
        self.ballast.unlink()


@pytest.fixture
def disk(tmp_path):
    if not ROOT:
        pytest.skip("only root may mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def closed(tmp_path):
    """A folder in which nothing can be written, whoever asks."""
    folder = tmp_path / "closed"
    folder.mkdir()
    if ROOT:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)], check=True)
    else:
        folder.chmod(0o555)
    yield folder
    if ROOT:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def refused(answer, status, why):
    assert (answer.status_code, why in answer.json()["message"]) == (status, True), answer.text
    return answer.json()["code"]


@pytest.mark.one_database
def test_a_full_disk_refuses_what_would_be_stored_answers_what_is_known_and_loses_nothing(
    make_server, disk, build
):
    server = make_server()
    server.home, server.database = disk.folder / "home", None
    server.start()
    slow = server.apply("slow", build.experiment("slow", seed="slow", steps=64, pause_s=0.3))
    build.until(lambda: server.run(slow["run"]["run_id"])["step"] >= 16)
    disk.fill()
    data = os.urandom(200_000)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    full = lambda: server.http.put(f"/api/v1/blobs/{digest}", content=data)  # noqa: E731
    assert refused(full(), 507, FULL) == "disk-full"
    big = build.experiment("big", seed="big", padding="x" * 300_000)
    assert refused(server.put("experiment", "big", big), 507, FULL) == "disk-full"
    assert server.http.get("/healthz").status_code == 200
    assert [r["name"] for r in server.state()["resources"]] == ["slow"]
    variables = {"ARENA_BASE_URL": str(server.http.base_url), "ARENA_API_KEY": server.announcement()["token"]}
    (disk.folder.parent / "rows.csv").write_text("question,answer\n" + "a,b\n" * 100_000)
    command = (
        "arena_gitops.cli.main",
        "datasets",
        "create",
        "rows",
        "--category",
        "reasoning",
        "--column-mapping",
        MAPPING,
    )
    said = run(*command, "--file", disk.folder.parent / "rows.csv", **variables)
    assert said.returncode == 1, said.stdout + said.stderr
    assert FULL in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr
    disk.free()
    assert full().status_code == 201
    assert server.put("experiment", "big", big).status_code == 200
    done = server.wait_run(slow["run"]["run_id"], timeout_s=60)
    assert (done["state"], done["step"]) == ("completed", 64)
    server.wait_run(server.resource("experiment/big")["run"]["run_id"])
    assert not list((server.home / "blobs").rglob(".incoming-*"))
    server.stop()
    assert server.process.returncode == 0
    with sqlite3.connect(server.home / "arena.db") as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.one_database
def test_blobs_on_a_disk_that_became_read_only_are_refused_until_it_is_writable(make_server, closed):
    server = make_server()
    server.database = None
    server.home.mkdir(exist_ok=True)
    (server.home / "blobs").symlink_to(closed)
    server.start()
    refuse = server.http.put("/api/v1/blobs/sha256:" + "0" * 64, content=b"x")
    assert refused(refuse, 503, CLOSED) == "read-only"
    (server.home / "blobs").unlink()
    (server.home / "blobs").mkdir()
    server.blob(b"x")


def test_a_server_does_not_start_in_a_read_only_folder_and_says_so_once(closed):
    said = run("arena_runner.cli", "server", "--home", closed / "home")
    assert said.returncode == 1
    [line] = said.stderr.splitlines()
    assert line == f"error: {closed / 'home'}: {CLOSED}. Make it writable and try again"


def test_a_server_does_not_start_on_a_full_disk_and_says_so_once(disk):
    disk.fill()
    said = run("arena_runner.cli", "server", "--home", disk.folder / "home")
    assert said.returncode == 1, said.stderr
    assert [line for line in said.stderr.splitlines() if FULL in line and line.startswith("error: ")]
    assert "Traceback" not in said.stderr
    disk.free()


def test_a_file_in_place_of_the_home_is_one_clear_error(tmp_path):
    (tmp_path / "home").write_text("mine")
    said = run("arena_runner.cli", "server", "--home", tmp_path / "home")
    assert said.returncode == 1
    assert said.stderr == f"error: {tmp_path / 'home'}: there is a file where a folder should be\n"


def test_a_backup_onto_a_full_disk_leaves_nothing(world, disk):
    world.blobs.put(os.urandom(200_000))
    disk.fill()
    variables = {"ARENA_DATABASE_URL": world.store.url.render_as_string(hide_password=False)}
    said = run(
        "arena_runner.cli", "backup", "--home", world.home.root, "--to", disk.folder / "b.tar", **variables
    )
    assert said.returncode == 1
    assert said.stderr.startswith("error: ")
    assert len(said.stderr.splitlines()) == 1
    assert "hush" not in said.stderr
    disk.free()
    assert list(disk.folder.iterdir()) == []


def test_a_database_that_is_read_only_or_away_is_said_and_comes_back(postgres, make_server, databases, build):
    if databases.kind == "sqlite":
        return  # the disk's tests are its own
    server = make_server().start()
    name = server.database.rpartition("/")[2]
    postgres.sql(f"alter database {name} set default_transaction_read_only = on")
    assert refused(_told(server, build, postgres, CLOSED), 503, CLOSED) == "read-only"
    postgres.sql(f"alter database {name} reset default_transaction_read_only")
    postgres.sql(f"alter database {name} with allow_connections false")
    away = "does not answer"
    assert refused(_told(server, build, postgres, away), 503, away) == "database-away"
    assert server.process.poll() is None
    postgres.sql(f"alter database {name} with allow_connections true")
    server.wait_run(server.apply("e", build.experiment("e"))["run"]["run_id"])


def _told(server, build, postgres, wanted):
    """The answer that says so, once no session is left from before: one that was beginning then is not seen at first."""
    database = server.database.rpartition("/")[2]
    every = f"from pg_stat_activity where datname = '{database}'"

    def ask():
        postgres.sql(f"select count(pg_terminate_backend(pid, 60000)) {every}")
        answer = server.put("experiment", f"asked-{time.monotonic_ns()}", build.experiment("asked"))
        return answer if wanted in answer.text else None

    return build.until(ask)


def test_a_blob_that_does_not_fit_leaves_nothing(world):
    """By a limit on the size of files, which needs no root and no disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as refused_:
            world.blobs.put(b"x" * (2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert fault_of(refused_.value).status == 507
    assert [p for p in world.blobs.root.rglob("*") if p.is_file()] == []
    world.blobs.put(b"x" * (2 << 20))


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (DBAPIError("insert", {}, psycopg.errors.DiskFull("could not extend file")), 507),
        (DBAPIError("insert", {}, psycopg.errors.ReadOnlySqlTransaction("no")), 503),
        (DBAPIError("insert", {}, psycopg.errors.LockNotAvailable("no")), 503),
        (DBAPIError("insert", {}, psycopg.errors.AdminShutdown("no")), 503),
        (DBAPIError("insert", {}, psycopg.errors.NumericValueOutOfRange("no")), 422),
        (DBAPIError("insert", {}, sqlite3.OperationalError("attempt to write a readonly database")), 503),
        (OSError(errno.EDQUOT, "quota"), 507),
    ],
)
def test_what_a_database_says_is_known_by_its_code(problem, status):
    assert fault_of(problem).status == status


@pytest.mark.parametrize("problem", [ValueError("x"), OSError(errno.EBADF, "x"), KeyError("x")])
def test_a_fault_of_ours_is_none_of_the_disks(problem):
    assert fault_of(problem) is None


def test_a_text_no_postgresql_can_keep_is_a_bad_request(world):
    if world.store.is_postgresql:
        with world.store.read() as session, pytest.raises(DBAPIError) as refused_:
            session.execute(text("select :text"), {"text": "a\0b"})
        assert fault_of(refused_.value).status == 422
