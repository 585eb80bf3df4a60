"""A server as a worker sees it, in memory: claims, files down, events up in order; it can be broken on purpose."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field

import httpx

from arena_gitops.spec.job import JobSpec
from arena_gitops.spec.wire import Claim, ClaimRequest, EventBatch, EventReceipt
from arena_gitops.spec.worker import HandBack, WorkerHello, WorkerWelcome
from arena_runner.server_link import ServerLink


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class MemoryServer:
    """What a worker sees of a server; `away` and `fenced` break it on purpose."""

    job: JobSpec | None = None
    blobs: dict = field(default_factory=dict)
    events: list = field(default_factory=list)
    heartbeats: int = 0
    directive: str = "continue"
    away: bool = False
    fenced: bool = False
    puts: list = field(default_factory=list)
    stop_after: int | None = None
    cap: int | None = None
    """what is still asked for, once two states are saved"""
    handed_back: list = field(default_factory=list)
    said: list = field(default_factory=list)
    """register, claim, leave: in the order in which they were asked"""
    jobs: list = field(default_factory=list)
    """further jobs, for a worker that asks for one after another"""
    wheels: tuple = (404, "")
    """status and text of the answer to whoever asks for wheels"""
    forgotten: bool = False
    """the server does not know the worker (any more)"""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request):
        with self.lock:
            if self.away:
                raise httpx.ConnectError("no route")
            asks = request.url.path.rpartition("/")[2] in {"claim", "register", "leave"}
            if request.headers["authorization"] != f"Bearer {'secret' if asks else 'of the job'}":
                return httpx.Response(401, text="who are you")
            if "/blobs/" in request.url.path:
                return self.blob(request, request.url.path.rpartition("/")[2])
            if "/wheels/" in request.url.path or "/models/" in request.url.path:
                status, text = self.wheels if "/wheels/" in request.url.path else (404, "")
                return httpx.Response(status, text=text)
            if request.url.path.endswith("/hand-back"):
                self.handed_back.append(HandBack.model_validate_json(request.content))
                return httpx.Response(409 if self.fenced else 204)
            if asks:
                return self.ask(request)
            return self.report(EventBatch.model_validate_json(request.content))

    def ask(self, request):
        what = request.url.path.rpartition("/")[2]
        self.said.append(what)
        if what == "register":
            self.forgotten = False
            hello = WorkerHello.model_validate_json(request.content)
            return httpx.Response(200, text=WorkerWelcome(tier=hello.tier, poll_s=0.05).model_dump_json())
        if what == "leave":
            return httpx.Response(204)
        if self.forgotten:
            return httpx.Response(409, text="not registered")
        return self.claim(ClaimRequest.model_validate_json(request.content))

    def blob(self, request, digest):
        if request.method == "PUT":
            data = request.read()
            if digest_of(data) != digest:
                return httpx.Response(422, text="other bytes")
            self.blobs[digest] = data
            self.puts.append(digest)
            return httpx.Response(201)
        if digest not in self.blobs:
            return httpx.Response(404)
        return httpx.Response(200, content=b"" if request.method == "HEAD" else self.blobs[digest])

    def claim(self, wanted):
        if self.job is None and self.jobs:
            self.job, self.events = self.jobs.pop(0), []
        if self.job is None or wanted.run_id not in {None, self.job.run_id}:
            return httpx.Response(204)
        claim = Claim(job=self.job, fence=3, heartbeat_s=0.05, token="of the job")
        self.job = None
        return httpx.Response(200, text=claim.model_dump_json())

    def report(self, batch):
        assert batch.fence == 3
        if self.fenced:
            return httpx.Response(409, text="fenced")
        self.heartbeats += not batch.events
        for event in batch.events:
            last = self.events[-1].seq if self.events else 0
            if event.seq == last + 1:
                self.check_files(event)
                self.events.append(event)
        if (
            self.stop_after is not None
            and sum(e.type == "resume_state" for e in self.events) >= self.stop_after
        ):
            self.directive = "stop"
        last = self.events[-1].seq if self.events else 0
        cap = self.cap if sum(e.type == "resume_state" for e in self.events) >= 2 else None
        receipt = EventReceipt(accepted_seq=last, directive=self.directive, max_steps=cap)
        return httpx.Response(200, text=receipt.model_dump_json())

    def check_files(self, event):
        named = (
            event.checkpoint.files
            if event.type == "checkpoint"
            else event.state.files
            if event.type == "resume_state"
            else {}
        )
        assert set(named.values()) <= set(self.blobs), f"event {event.seq} came before its files"

    def link(self, token="secret"):
        return ServerLink("http://server", token, transport=httpx.MockTransport(self))

    def keep(self, data):
        self.blobs[digest_of(data)] = data
        return digest_of(data)


def served_job(lab, server, **training):
    """A job whose inputs are blobs of the server."""
    job = lab.job("GRPO", training={"max_steps": 32} | training)
    rows = server.keep((lab.folder / "rows.jsonl").read_bytes())
    reward = server.keep((lab.folder / "reward" / "reward.py").read_bytes())
    dataset = job.inputs.dataset.model_copy(update={"digest": rows})
    scoring = job.inputs.reward.model_copy(
        update={"files": {"rewards/reward.py": reward}, "entry": "rewards/reward.py"}
    )
    return job.model_copy(
        update={"inputs": job.inputs.model_copy(update={"dataset": dataset, "reward": scoring})}
    )
