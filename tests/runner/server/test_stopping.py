"""SIGTERM while people are waiting: what is short ends as it would have, what is long ends in words, nothing is begun."""

import json
import signal
import threading
import time
from dataclasses import dataclass, field

import httpx
import pytest
from arena_asks import MANIFEST, REWARD, P, make_dataset, submit
from starlette.testclient import TestClient

from arena_runner.server.app import create_app
from arena_runner.server.auth import Role, issue
from arena_runner.server.main import BOUND_S

SHORT, LONG = "count to 25", "count to 10000"
pytestmark = pytest.mark.one_database


@dataclass
class Waiting:
    """Requests in flight, and what became of each."""

    http: httpx.Client
    began: dict = field(default_factory=dict)
    ended: dict = field(default_factory=dict)
    threads: list = field(default_factory=list)

    def ask(self, name, path, body):
        """In a thread of its own; the text as it came, or the error of a line that was cut."""
        self.began[name] = threading.Event()
        self.threads.append(threading.Thread(target=self._read, args=(name, path, body)))
        self.threads[-1].start()

    def _read(self, name, path, body):
        text = ""
        try:
            with self.http.stream("POST", path, **body) as answer:
                for chunk in answer.iter_text():
                    text += chunk
                    self.began[name].set()
                self.ended[name] = (answer.status_code, text)
        except httpx.TransportError as error:
            self.ended[name] = (type(error).__name__, text)
        self.began[name].set()


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, build):
    """A server that was told to stop while five people waited; how long it took, what they got, and the next server."""
    server = build.Server(tmp_path_factory.mktemp("stopping") / "home", tiers=1).start()
    server.apply("chat", build.experiment("chat"))
    server.apply("chat", build.deployment("chat"), kind="deployment")
    build.until(lambda: server.resource("deployment/chat")["deployment"]["state"] == "serving")
    assert make_dataset(server.http).status_code == 200
    waiting = Waiting(server.http)
    slow = b"import time\ntime.sleep(1.5)\n" + REWARD
    form = {"manifest": json.dumps(MANIFEST), "experiment_name": "late", "resource_id": "local"}
    reward = ("reward.py", slow, "text/x-python")
    sent = {"data": form, "files": {"reward_file": reward}}
    waiting.ask("submission", f"{P}/experiments/jobs/submit", sent)
    for size, words in (("endless ", LONG), ("", SHORT)):  # what ends first begins last
        waiting.ask(f"{size}text", "/i/chat/generate_stream", {"json": {"prompt": words}})
        said = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": words}]}
        waiting.ask(f"{size}chat", "/v1/chat/completions", {"json": said})
        assert all(began.wait(60) for began in waiting.began.values())
    assert set(waiting.ended) <= {"submission"}
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    build.until(lambda: not (server.home / "server.json").exists())
    refused = first_refusal(server, build)
    server.process.wait(60)
    seconds = time.monotonic() - began
    for thread in waiting.threads:
        thread.join()
    left, code = server.processes(), server.process.returncode
    yield server, waiting.ended, refused, seconds, (code, left)
    server.stop()


def first_refusal(server, build):
    """What somebody is told who comes now: that it stops, or nothing, because nobody listens any more."""
    with httpx.Client(base_url=server.http.base_url, headers=server.http.headers) as late:
        try:
            return late.put("/api/v1/resources/project/new", json=put(build)).status_code
        except httpx.TransportError:
            return None


def put(build):
    return build.experiment("new").model_dump(mode="json") | {"spec": {}}


def test_it_ends_in_time_and_leaves_nothing_behind(stopped):
    _, _, refused, seconds, end = stopped
    assert end == (0, [])
    assert seconds < BOUND_S + 5
    assert refused in {503, None}


def test_what_ends_in_time_ends_as_it_would_have(stopped):
    ended = stopped[1]
    whole = " ".join(map(str, range(25))) + " "
    assert ended["text"] == (200, whole)
    status, text = ended["chat"]
    chunks = [
        json.loads(line.removeprefix("data: "))
        for line in text.split("\n\n")
        if line and "[DONE]" not in line
    ]
    assert (status, text.endswith("data: [DONE]\n\n")) == (200, True)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == whole
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_what_does_not_ends_in_the_words_of_its_dialect(stopped):
    ended = stopped[1]
    status, text = ended["endless text"]
    assert (status, text.startswith("0 1 2 ")) == (200, True)
    assert text.endswith("\n[ERROR: the server is stopping; ask again in a moment]")
    status, text = ended["endless chat"]
    events = text.strip().split("\n\n")
    assert (status, events[-1]) == (200, "data: [DONE]")
    assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "stopping"


def test_a_submission_has_happened_wholly_or_not_at_all(stopped):
    server, ended, *_ = stopped
    status, text = ended["submission"]
    last = lines(text)[-1]
    assert (status, last["status"] in {"completed", "failed"}) == (200, True)
    server.start()
    known = {r["name"]: r for r in server.state("imperative")["resources"] if r["kind"] == "experiment"}
    assert ("late" in known) == (last["status"] == "completed")
    assert [line["status"] for line in submit(server.http, experiment_name="late", resource_id="local")][
        -1:
    ] == ["completed"]


@pytest.fixture
def draining(world):
    with TestClient(create_app(world)) as http:
        http.headers["Authorization"] = f"Bearer {issue(world, Role.ADMIN, 'me')}"
        world.draining.set()
        yield http


@pytest.mark.parametrize(
    ("method", "path", "where"),
    [
        ("GET", "/api/v1/state?stack=team", "message"),
        ("PUT", "/api/v1/resources/project/new", "message"),
        ("POST", "/api/cli/v1/experiments/jobs/submit", "detail"),
        ("GET", "/i/chat/status", "message"),
        ("POST", "/v1/chat/completions", "error"),
    ],
)
def test_nothing_new_is_begun_while_the_workers_save(draining, method, path, where):
    answer = draining.request(method, path, json={})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "the server is stopping" in str(answer.json()[where])


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/api/v1/workers", "/api/v1/blobs/sha256:" + "0" * 64]
)
def test_workers_and_those_who_ask_how_it_is_are_answered_to_the_end(draining, path):
    answer = draining.get(path)
    assert "ask again in a moment" not in answer.text
    assert answer.status_code in {200, 404} or path == "/readyz"
