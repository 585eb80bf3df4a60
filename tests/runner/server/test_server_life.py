"""One server per home: its lock, its announcement, what it leaves behind, how light and how quick it is."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest


@pytest.mark.one_database
def test_the_announcement_is_private_and_names_this_process(shared_server):
    path = shared_server.home / "server.json"
    note = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(note) == {"pid", "started", "port", "token", "version"}
    assert abs(psutil.Process(note["pid"]).create_time() - note["started"]) < 1


@pytest.mark.one_database
def test_a_second_server_for_the_same_home_refuses_and_names_the_first(shared_server):
    command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(shared_server.home)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    pid = shared_server.announcement()["pid"]
    assert second.returncode == 5
    assert f"runs already: pid {pid}" in second.stderr


@pytest.fixture
def from_nothing(tmp_path, build):
    """A server that found nothing, not even a database; and the seconds until it said that it is ready.

    On the clock, less what it had to wait for a processor because this machine does other things too.
    """
    server, began = build.Server(tmp_path / "empty"), time.time()
    try:
        server.start()
        clock = (server.home / "server.json").stat().st_mtime - began
        waited = int(Path(f"/proc/{server.process.pid}/schedstat").read_text().split()[1]) / 1e9
        yield server, clock - waited
    finally:
        server.stop()


@pytest.mark.one_database
def test_from_an_empty_folder_it_is_ready_in_three_seconds_and_light(from_nothing):
    server, seconds = from_nothing
    process = psutil.Process(server.process.pid)
    assert seconds < 3.0
    assert sum(process.cpu_times()[:2]) < 3.0
    assert process.memory_info().rss < 200 * 2**20
    assert not [m.path for m in process.memory_maps() if "torch" in m.path or "/mlflow/" in m.path]


def test_the_server_is_light_and_has_no_torch(shared_server):
    process = psutil.Process(shared_server.announcement()["pid"])
    assert process.memory_info().rss < 200 * 2**20
    mapped = {m.path for m in process.memory_maps()}
    assert not [path for path in mapped if "torch" in path or "/mlflow/" in path]


@pytest.mark.one_database
def test_address_and_login_survive_a_stop_unless_the_port_is_taken_meanwhile(server):
    before = server.announcement()
    server.stop()
    assert not (server.home / "server.json").exists()
    assert stat.S_IMODE((server.home / "server.last.json").stat().st_mode) == 0o600
    server.start()
    after = server.announcement()
    assert (after["port"], after["token"]) == (before["port"], before["token"])
    assert after["pid"] != before["pid"]
    server.stop(signal.SIGINT)
    assert server.process.returncode == 0
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", after["port"]))
        squatter.listen()
        server.start()
    assert server.announcement()["port"] != after["port"]


@pytest.mark.one_database
def test_a_stale_announcement_does_not_stop_a_new_server(make_server):
    server = make_server()
    server.home.mkdir(exist_ok=True)
    stale = {"pid": os.getpid(), "started": 1.0, "port": 1, "token": "old", "version": "0.0.1"}
    (server.home / "server.json").write_text(json.dumps(stale))
    server.start()
    assert server.http.get("/healthz").status_code == 200


def test_two_homes_never_meet(shared_server, server, build):
    shared_server.apply("exp", build.experiment())
    assert server.announcement()["port"] != shared_server.announcement()["port"]
    assert server.state()["resources"] == []
    headers = {"Authorization": f"Bearer {shared_server.announcement()['token']}"}
    assert httpx.get(f"{server.http.base_url}/api/v1/tiers", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("name", "text"), [("settings.yaml", "limits: {max_step: 3}"), ("tiers.yaml", "tiers: []")]
)
def test_a_wrong_settings_file_is_one_clear_error(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 64
    assert str(tmp_path / name) in ended.stderr
    assert "Traceback" not in ended.stderr
