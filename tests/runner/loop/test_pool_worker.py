"""A worker that asks for one job after another: introduction, patience, order, and going when told to."""

import os
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest
from memory_server import MemoryServer, served_job

from arena_runner import pool
from arena_runner.leaving import Leaving
from arena_runner.pool import Shift, tidy, work_pool
from arena_runner.server_link import RefusedError, ServerLink
from arena_runner.worker import Post


@pytest.fixture
def server():
    return MemoryServer()


@pytest.fixture
def post(tmp_path):
    return Post(tmp_path / "work", None, "gpu", "w-1")


@pytest.fixture
def leaving():
    made = Leaving(grace_s=10)
    with made.on_signals():
        yield made


def numbered(lab, server, count):
    job = served_job(lab, server)
    return [job.model_copy(update={"run_id": f"r_{n}"}) for n in range(count)]


def test_it_introduces_itself_does_what_there_is_and_says_goodbye(lab, server, post, leaving):
    server.jobs = numbered(lab, server, 2)

    assert work_pool(server.link(), post, leaving, Shift(once=True)) == 2

    assert server.said == ["register", "claim", "claim", "claim", "leave"]
    assert server.events[-1].state == "completed"


def test_it_goes_after_as_many_jobs_as_it_was_told(lab, server, post, leaving):
    server.jobs = numbered(lab, server, 3)

    assert work_pool(server.link(), post, leaving, Shift(max_jobs=1)) == 1
    assert len(server.jobs) == 2


def test_what_the_server_has_is_not_kept_here(lab, server, post, leaving):
    server.jobs = numbered(lab, server, 1)
    work_pool(server.link(), post, leaving, Shift(once=True))

    assert list(post.workdir.iterdir()) == []


def test_what_is_left_of_jobs_that_went_elsewhere_is_removed_after_some_days(tmp_path):
    for name, age_s in (
        ("r_old", pool.KEPT_S + 60),
        ("r_young", 60),
        ("r_mine", pool.KEPT_S + 60),
        ("x", 1e9),
    ):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)

    tidy(tmp_path, "r_mine")

    assert {path.name for path in tmp_path.iterdir()} == {"r_young", "r_mine", "x"}


def test_a_worker_the_server_has_forgotten_introduces_itself_again(lab, server, post, leaving):
    server.jobs, server.forgotten = numbered(lab, server, 1), True
    original = server.ask

    def forgetful(request):
        answer = original(request)
        server.forgotten = server.said == ["register"]
        return answer

    server.ask = forgetful
    work_pool(server.link(), post, leaving, Shift(max_jobs=1))

    assert server.said == ["register", "claim", "register", "claim", "leave"]


def test_a_server_that_is_away_is_waited_for(lab, server, post, leaving, monkeypatch):
    monkeypatch.setattr(pool, "FIRST_WAIT_S", 0.02)
    server.jobs, server.away = numbered(lab, server, 1), True
    threading.Timer(0.2, setattr, (server, "away", False)).start()

    assert work_pool(server.link(), post, leaving, Shift(max_jobs=1)) == 1


def test_a_worker_that_is_not_wanted_says_why_and_ends(post, leaving):
    body = {"code": "wrong-version", "message": "install arena-runner==9 there", "details": {}}
    link = ServerLink(
        "http://s", "t", transport=httpx.MockTransport(lambda _: httpx.Response(426, json=body))
    )

    with pytest.raises(RefusedError, match="426 install arena-runner==9 there"):
        work_pool(link, post, leaving, Shift())


def test_an_idle_worker_goes_when_told(server, post, leaving):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()

    assert work_pool(server.link(), post, leaving, Shift()) == 0
    assert server.said[-1] == "leave"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_with_a_job_saves_hands_it_back_and_goes(lab, server, post, leaving, number):
    server.jobs = [served_job(lab, server, max_steps=100_000)]
    threading.Timer(1.0, os.kill, (os.getpid(), number)).start()

    assert work_pool(server.link(), post, leaving, Shift()) == 1

    assert server.events[-1].type == "resume_state"
    assert [(b.fault, b.message) for b in server.handed_back] == [(False, "its worker had to go")]
    assert server.said[-1] == "leave"


def test_a_worker_that_lost_its_job_asks_for_the_next_one(lab, server, post, leaving):
    server.jobs = [served_job(lab, server, max_steps=100_000), *numbered(lab, server, 1)]
    server.fenced = True
    original = server.claim

    def relieved(wanted):
        server.fenced = server.job is None and len(server.jobs) == 2
        return original(wanted)

    server.claim = relieved
    assert work_pool(server.link(), post, leaving, Shift(max_jobs=2)) == 2
    assert server.events[-1].state == "completed"


SLOW = """
import sys, threading, time
from arena_runner.leaving import Leaving

class Journal:
    def ask_to_stop(self, why):
        print("asked", why, flush=True)

leaving = Leaving(grace_s=float(sys.argv[1]))
with leaving.on_signals(), leaving.holding(Journal(), lambda why: print("gave back:", why, flush=True)):
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("grace", "signals"), [("0.2", 1), ("60", 2)])
def test_an_iteration_that_outlasts_the_grace_or_a_second_signal_ends_the_process_with_its_job_back(
    grace, signals
):
    process = subprocess.Popen([sys.executable, "-c", SLOW, grace], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked interrupted\n"

    assert process.stdout.readline() == "gave back: its worker had to go in the middle of an iteration\n"
    assert process.wait(10) == 143
