"""The life of the embedded server, with a small program in the runner's place.

The program keeps the runner's promises (server.json when ready, /healthz, SIGTERM ends it) and nothing else;
that the real runner keeps them too is shown by the end-to-end tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from arena_gitops import __version__
from arena_gitops.errors import ArenaError, PlatformUnreachableError
from arena_gitops.platforms import process
from arena_gitops.platforms.local import Home, find_runner, open_local, stop_local

RUNNER = """#!{python} -I
import json, os, pathlib, signal, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
home = pathlib.Path(sys.argv[sys.argv.index("--home") + 1])
with open(home / "starts", "a") as starts:
    starts.write("start\\n")
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers()
        self.wfile.write(b"{{}}")
    def log_message(self, *args): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
btime = next(float(l.split()[1]) for l in open("/proc/stat") if l.startswith("btime"))
note = dict(pid=os.getpid(), started=btime + int(stat[19]) / os.sysconf("SC_CLK_TCK"), port=server.server_port,
            token="t", version={version!r})
(home / "new").write_text(json.dumps(note)); os.rename(home / "new", home / "server.json")
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(0.01)
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "arena-runner"
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    stop_local(home)


@pytest.fixture
def runner(tmp_path):
    return program(tmp_path, RUNNER.format(python=sys.executable, version=__version__))


def starts(home: Home) -> int:
    return len((home.path / "starts").read_text().splitlines())


def test_a_server_is_started_once_and_found_again(home, runner):
    said = []
    first = open_local(home, find=lambda: runner, say=said.append)
    second = open_local(
        home, find=lambda: pytest.fail("no runner is needed to find a server"), say=said.append
    )
    assert first.url == second.url
    assert starts(home) == 1
    assert said == [f"starting the local server in {home.path}", f"local server ready on {first.url}"]


def test_the_server_is_in_a_session_of_its_own(home, runner):
    open_local(home, find=lambda: runner)
    assert os.getsid(home.running().pid) != os.getsid(0)


def test_commands_that_start_at_once_agree_on_one_server(home, runner):
    urls = []
    threads = [
        threading.Thread(target=lambda: urls.append(open_local(home, find=lambda: runner).url))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(urls) == 4
    assert len(set(urls)) == 1
    assert starts(home) == 1


def test_a_server_of_another_version_is_stopped_and_replaced(home, runner, tmp_path):
    (tmp_path / "old").mkdir()
    old_runner = program(tmp_path / "old", RUNNER.format(python=sys.executable, version="0.0.1"))
    home.path.mkdir()
    old = subprocess.Popen([old_runner, "server", "--home", home.path])
    while home.running() is None:
        time.sleep(0.01)
    said = []
    threading.Thread(target=old.wait, daemon=True).start()  # nobody else reaps it in this test
    open_local(home, find=lambda: runner, say=said.append)
    assert home.running().version == __version__
    assert said[0] == f"stopping the local server of version 0.0.1 (this is {__version__})"
    assert old.wait(timeout=5) == 0


def test_a_note_about_another_process_is_not_believed(home, runner):
    home.path.mkdir()
    note = {"pid": os.getpid(), "started": 1.0, "port": 1, "token": "t", "version": __version__}
    (home.path / "server.json").write_text(json.dumps(note))
    assert home.running() is None
    open_local(home, find=lambda: runner)
    assert home.running().pid != os.getpid()


def test_a_server_that_dies_at_its_start_shows_the_end_of_its_log(home, tmp_path):
    broken = program(tmp_path, "#!/bin/sh\necho 'disk is full' >&2\nexit 3\n")
    with pytest.raises(PlatformUnreachableError, match=r"exit code 3 before it was ready(.|\n)*disk is full"):
        open_local(home, find=lambda: broken)


def test_stopping_what_does_not_run_says_so(home):
    assert stop_local(home) is False


def test_a_stopped_server_is_started_again(home, runner):
    open_local(home, find=lambda: runner)
    assert stop_local(home) is True
    assert home.running() is None
    open_local(home, find=lambda: runner)
    assert starts(home) == 2


def test_the_runner_beside_the_interpreter_comes_first(tmp_path, runner):
    assert find_runner(beside=tmp_path) == runner


def test_then_path_then_the_target_names_the_runner(tmp_path, runner):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert find_runner("/named", beside=empty, search_path=str(tmp_path)) == runner
    assert find_runner(str(runner), beside=empty, search_path=str(empty)) == runner


def test_no_runner_at_all_is_answered_with_the_pip_line(tmp_path):
    with pytest.raises(ArenaError, match=r'pip install "arena-runner\[train\]"') as caught:
        find_runner(beside=tmp_path, search_path=str(tmp_path))
    assert caught.value.exit_code == 1


def test_a_runner_that_a_target_names_relatively_is_refused(tmp_path):
    with pytest.raises(ArenaError, match="give an absolute path"):
        find_runner("./evil.sh", beside=tmp_path, search_path=str(tmp_path))


def test_the_home_is_where_the_environment_says(tmp_path):
    assert Home.of({"ARENA_HOME": str(tmp_path)}).path == tmp_path
    assert Home.of({}).path == Path.home() / ".local" / "share" / "arena-gitops"


def test_a_process_is_itself_and_a_finished_one_is_nobody():
    started = process.started_at(os.getpid())
    assert process.is_same(os.getpid(), started)
    assert not process.is_same(os.getpid(), started - 60)
    child = subprocess.Popen(["true"])
    while process.started_at(child.pid) is not None:  # a zombie counts as gone
        time.sleep(0.01)
    child.wait()
    assert process.started_at(child.pid) is None


def test_start_times_agree_with_those_of_psutil():
    psutil = pytest.importorskip("psutil")  # the runner's library: the two sides must name a process alike
    assert process.started_at(os.getpid()) == pytest.approx(psutil.Process().create_time(), abs=0.5)
