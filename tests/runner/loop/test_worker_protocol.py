"""The worker against a server in memory: claim, files down, events up in order, stop, fence, lost server."""

import os
import signal
import threading
import time
from dataclasses import replace

import httpx
import pytest
from memory_server import MemoryServer, digest_of, served_job

from arena_gitops.errors import ArenaError, PlatformUnreachableError
from arena_gitops.spec.job import Log, ResumeState, ResumeStateSaved
from arena_gitops.spec.wire import ClaimRequest, EventReceipt
from arena_runner import worker
from arena_runner.bring import bring
from arena_runner.journal import Journal
from arena_runner.leaving import TERMINATED, Leaving
from arena_runner.ports import Stop
from arena_runner.server_link import FencedError, RefusedError, ServerLink, UnreachableError
from arena_runner.worker import Post, work_one


def work(link, post, run_id):
    leaving = Leaving(grace_s=10)
    with leaving.on_signals():
        return work_one(link, post, run_id, leaving)


@pytest.fixture
def server():
    return MemoryServer()


@pytest.fixture
def post(tmp_path):
    return Post(tmp_path / "work", None, "local", "w-1")


def test_a_job_is_trained_and_reported_to_its_end(lab, server, post):
    server.job = served_job(lab, server)

    assert work(server.link(), post, "r1") == 0

    assert [e.seq for e in server.events] == list(range(1, len(server.events) + 1))
    assert (server.events[0].type, server.events[-1].type) == ("started", "finished")
    assert server.events[-1].state == "completed"
    assert sum(e.type == "resume_state" for e in server.events) >= 1


def test_every_event_was_written_down_before_it_was_sent(lab, server, post):
    server.job = served_job(lab, server)
    work(server.link(), post, "r1")

    lines = (post.workdir / "r1" / "events-0.ndjson").read_text().splitlines()
    assert len(lines) == len(server.events)


def test_no_file_is_sent_twice(lab, server, post):
    server.job = served_job(lab, server)
    work(server.link(), post, "r1")

    assert len(server.puts) == len(set(server.puts))


def test_exports_the_server_has_are_not_kept_twice(lab, server, post):
    server.job = served_job(lab, server)
    work(server.link(), post, "r1")

    named = {d for e in server.events if e.type == "checkpoint" for d in e.checkpoint.files.values()}
    assert named <= set(server.blobs)
    assert [path for path in (post.workdir / "r1" / "exports").rglob("*") if path.is_file()] == []


def test_a_stop_ends_the_run_at_the_end_of_an_iteration(lab, server, post):
    server.job, server.stop_after = served_job(lab, server, max_steps=100_000), 2

    assert work(server.link(), post, "r1") == 0

    assert server.events[-1].state == "stopped"
    assert server.events[-2].type == "resume_state"


def test_a_cap_ends_the_run_early_as_a_complete_one(lab, server, post):
    server.job, server.cap = served_job(lab, server, max_steps=100_000), 16

    assert work(server.link(), post, "r1") == 0

    assert server.events[-1].state == "completed"
    steps = [e.step for e in server.events if e.type == "progress"]
    assert 16 <= max(steps) < 10_000
    assert [e.step for e in server.events if e.type == "evaluation"][-1] == max(steps)


def test_a_stopped_run_is_resumed_by_another_worker_from_blobs_alone(lab, server, post, tmp_path):
    job = server.job = served_job(lab, server, max_steps=64)
    server.stop_after = 2
    work(server.link(), post, "r1")
    state = [e.state for e in server.events if e.type == "resume_state"][-1]
    server.events.clear()
    server.directive, server.stop_after = "continue", None
    server.job = job.model_copy(update={"segment": 1, "resume": state})

    assert work(server.link(), Post(tmp_path / "elsewhere", None, "local", "w-2"), "r1") == 0

    assert server.events[0].resumed_at_iteration == state.iteration
    assert min(e.iteration for e in server.events if e.type == "progress") == state.iteration + 1
    assert server.events[-1].state == "completed"


def test_a_reward_that_raises_ends_the_run_as_the_users_fault(lab, server, post):
    lab.reward("def reward(question, answer, completion):\n    raise ValueError('no unit')\n")
    server.job = served_job(lab, server)

    assert work(server.link(), post, "r1") == 0

    assert (server.events[-1].state, server.events[-1].reason) == ("failed", "user_code")
    assert "rewards/reward.py:2" in server.events[-1].message


@pytest.mark.parametrize(("status", "reason"), [(422, "user_code"), (424, "infra")])
def test_requirements_that_are_not_to_be_had_end_the_run_before_it_trains(lab, server, post, status, reason):
    """As its author's to mend, or as something that may pass: the server then lets the run go on later."""
    job = served_job(lab, server)
    reward = job.inputs.reward.model_copy(update={"requirements": ("nothing",)})
    server.job = job.model_copy(update={"inputs": job.inputs.model_copy(update={"reward": reward})})
    server.wheels = (status, '{"code": "x", "message": "no wheel of nothing"}')

    assert work(server.link(), replace(post, models_cache=post.workdir / "models"), "r1") == 0

    ended = server.events[-1]
    assert (ended.state, ended.reason, ended.message) == ("failed", reason, "no wheel of nothing")
    assert server.handed_back == []


def test_a_fenced_worker_leaves_quietly(lab, server, post):
    server.job, server.fenced = served_job(lab, server, max_steps=100_000), True

    assert work(server.link(), post, "r1") == 0
    assert server.events == []


def test_sigterm_leaves_at_the_end_of_an_iteration_with_its_own_code(lab, server, post):
    server.job = served_job(lab, server, max_steps=100_000)
    terminator = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGTERM))
    terminator.start()

    assert work(server.link(), post, "r1") == TERMINATED
    assert "finished" not in {e.type for e in server.events}
    assert server.events[-1].type == "resume_state"
    assert [(b.fault, b.message) for b in server.handed_back] == [(False, "its worker had to go")]


def test_a_fault_of_the_worker_itself_is_not_reported_as_an_end(lab, server, post):
    job = served_job(lab, server)
    server.job = job.model_copy(
        update={"resume": ResumeState(iteration=1, files={"standing.json": server.keep(b"{")})}
    )

    with pytest.raises(OSError, match="adapters"):
        work(server.link(), post, "r1")
    assert "finished" not in {e.type for e in server.events}
    assert [b.fault for b in server.handed_back] == [True]
    assert "adapters" in server.handed_back[0].message


def test_a_worker_keeps_the_runs_time_even_if_nobody_tells_it_to(lab, server, post):
    job = served_job(lab, server, max_steps=100_000)
    server.job = job.model_copy(update={"limits": job.limits.model_copy(update={"max_runtime_s": 0.5})})

    assert work(server.link(), post, "r1") == 0

    assert (server.events[-2].type, server.events[-1].state) == ("resume_state", "stopped")


def test_nothing_to_do_is_no_error(server, post):
    assert work(server.link(), post, "r9") == 0


def test_a_job_cannot_name_files_outside_its_folder(lab, server, post):
    job, link = served_job(lab, server), claimed(server)
    reward = job.inputs.reward.model_copy(update={"files": {"../evil.py": server.keep(b"x")}})
    job = job.model_copy(update={"inputs": job.inputs.model_copy(update={"reward": reward})})

    with pytest.raises(ArenaError, match="outside its folder"):
        bring(job, link, post.workdir, None)


def test_events_wait_for_a_server_that_is_away(server, tmp_path):
    server.job, server.away = None, False
    link = claimed(server)
    server.away = True
    with Journal(tmp_path / "e.ndjson", link, fence=3, heartbeat_s=5) as journal:
        for i in range(3):
            journal.emit(Log(level="info", message=str(i)))
        assert not journal.drain(0.3)
        server.away = False
        assert journal.drain(10)

    assert [(e.seq, e.message) for e in server.events] == [(1, "0"), (2, "1"), (3, "2")]


def test_a_server_that_takes_nothing_is_not_asked_without_end(server, tmp_path):
    asked = []

    def deaf(batch):
        asked.append(batch)
        return httpx.Response(200, text=EventReceipt(accepted_seq=0).model_dump_json())

    server.report = deaf
    with Journal(tmp_path / "e.ndjson", claimed(server), fence=3, heartbeat_s=5) as journal:
        journal.emit(Log(level="info", message="x"))
        assert not journal.drain(0.7)
    assert 1 <= len(asked) <= 4


def claimed(server):
    link = server.link()
    link._job, link._pass = "/api/v1/workers/jobs/r1/0", {"Authorization": "Bearer of the job"}
    return link


def test_of_waiting_resume_states_only_the_newest_is_uploaded(server, tmp_path):
    link = claimed(server)
    server.away = True
    with Journal(tmp_path / "e.ndjson", link, fence=3, heartbeat_s=5) as journal:
        for i in range(3):
            path = tmp_path / f"state{i}"
            path.write_bytes(b"%d" % i)
            digest = digest_of(path.read_bytes())
            journal.emit(
                ResumeStateSaved(state=ResumeState(iteration=i, files={"f": digest})), {digest: path}
            )
        (tmp_path / "state0").unlink()
        server.away = False
        assert journal.drain(10)

    assert [e.type for e in server.events] == ["log", "log", "resume_state"]
    assert server.puts == [digest_of(b"2")]


def test_a_loop_faster_than_the_line_still_has_its_resume_states_uploaded(server, tmp_path):
    """Each upload takes the newest state there is, and is not overtaken by the next ones."""
    with Journal(tmp_path / "e.ndjson", claimed(server), fence=3, heartbeat_s=5) as journal:
        for i in range(200):
            path = tmp_path / f"state{i}"
            path.write_bytes(b"%d" % i)
            digest = digest_of(path.read_bytes())
            journal.emit(
                ResumeStateSaved(state=ResumeState(iteration=i, files={"f": digest})), {digest: path}
            )
            if i > 1:
                (tmp_path / f"state{i - 2}").unlink()
            time.sleep(0.001)
        assert journal.drain(10)

    saved = [e.state.iteration for e in server.events if e.type == "resume_state"]
    assert saved[-1] == 199
    assert len(saved) > 5
    assert len(server.events) == 200


def test_heartbeats_are_sent_while_nothing_happens(server, tmp_path):
    with Journal(tmp_path / "e.ndjson", claimed(server), fence=3, heartbeat_s=0.02):
        time.sleep(0.3)

    assert server.heartbeats >= 3


def test_a_refusal_that_is_no_fence_ends_the_process(server, tmp_path):
    link = ServerLink("http://server", "wrong", transport=httpx.MockTransport(server))
    link._job = "/x"
    with Journal(tmp_path / "e.ndjson", link, fence=3, heartbeat_s=5) as journal:
        journal.emit(Log(level="info", message="x"))
        journal.drain(5)

        with pytest.raises(RefusedError, match="401"):
            journal.stop()


def test_the_first_reason_to_stop_stands(server, tmp_path):
    with Journal(tmp_path / "e.ndjson", claimed(server), fence=3, heartbeat_s=5) as journal:
        journal.ask_to_stop(Stop.INTERRUPTED)
        journal.ask_to_stop(Stop.ASKED)

        assert journal.stop() is Stop.INTERRUPTED


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (409, FencedError),
        (412, FencedError),
        (503, UnreachableError),
        (429, UnreachableError),
        (422, RefusedError),
    ],
)
def test_refusals_are_three_outcomes(status, error):
    link = ServerLink(
        "http://s", "t", transport=httpx.MockTransport(lambda _: httpx.Response(status, text="why"))
    )

    with pytest.raises(error, match="why"):
        link.claim(ClaimRequest(worker_id="w", tier="local"))


def test_a_download_that_is_not_what_it_says_is_refused(tmp_path):
    link = ServerLink(
        "http://s", "t", transport=httpx.MockTransport(lambda _: httpx.Response(200, content=b"other"))
    )

    with pytest.raises(RefusedError, match="arrived as"):
        link.get(digest_of(b"this"), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_never_answers_a_claim_is_an_error(server, post, monkeypatch):
    server.away = True
    monkeypatch.setattr(worker, "CLAIM_S", 0.1)

    with pytest.raises(PlatformUnreachableError, match="no route"):
        work(server.link(), post, "r1")
