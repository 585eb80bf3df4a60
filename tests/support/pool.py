"""Workers of other machines at the level of the protocol: what they ask, and what the server answers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Tier
from arena_runner.server import auth
from arena_runner.server.auth import NewToken, Role
from arena_runner.server.services import resources, runs

WORKERS = "/api/v1/workers"


def pull_tier(name="gpu", **changes):
    """A tier whose jobs are done by workers that ask for them."""
    shape = {"num_cpus": 2, "ram_gb": 16.0, "credits_per_node_hour": 36.0, "executor": "pull"}
    return Tier(id=name, **{**shape, **changes})


@dataclass
class PoolWorker:
    """A worker with a token of its own and, once it has claimed, with a job."""

    http: object
    token: str
    name: str
    tier: str
    claim: dict | None = None
    seq: int = 0

    def ask(self, method, path, token=None, **options):
        headers = {"Authorization": f"Bearer {token or self.token}", **options.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **options)

    def register(self, **changes):
        hello = {"worker_id": self.name, "hostname": "gpu-7", "tier": self.tier, "version": auth_version()}
        return self.ask("POST", f"{WORKERS}/register", json=hello | changes)

    def try_claim(self, **changes):
        wanted = {"worker_id": self.name, "tier": self.tier} | changes
        return self.ask("POST", f"{WORKERS}/claim", json=wanted)

    def take(self):
        """Claim; the job, or None."""
        answer = self.try_claim()
        assert answer.status_code in {200, 204}, answer.text
        if answer.status_code == 200:
            self.claim, self.seq = answer.json(), 0
            return self.claim["job"]
        return None

    @property
    def job_path(self):
        job = self.claim["job"]
        return f"{WORKERS}/jobs/{job['run_id']}/{job['segment']}"

    def report(self, *events):
        """Report the next events; the whole answer."""
        batch = [{"seq": self.seq + n, "ts": 0.0, **event} for n, event in enumerate(events, 1)]
        body = {"fence": self.claim["fence"], "events": batch}
        answer = self.ask("POST", f"{self.job_path}/events", self.claim["token"], json=body)
        if answer.status_code == 200:
            self.seq = answer.json()["accepted_seq"]
        return answer

    def hand_back(self, **changes):
        body = {"fence": self.claim["fence"]} | changes
        return self.ask("POST", f"{self.job_path}/hand-back", self.claim["token"], json=body)

    def upload(self, data):
        digest = digest_of(data)
        return self.ask("PUT", f"/api/v1/blobs/{digest}", self.claim["token"], content=data)

    def read(self, digest):
        return self.ask("GET", f"/api/v1/blobs/{digest}", self.claim["token"])

    def save(self, iteration, text="state"):
        """Upload and report a resume state."""
        data = f"{text} {iteration}".encode()
        answer = self.upload(data)
        if answer.status_code not in {200, 201}:
            return answer
        state = {"iteration": iteration, "files": {"state": digest_of(data)}}
        return self.report({"type": "resume_state", "state": state})


@dataclass
class Pool:
    """A server without threads whose workers are elsewhere."""

    world: object
    http: object
    workers: list = field(default_factory=list)

    def token(self, tier=None):
        text = auth.new_text()
        with self.world.store.write() as session:
            auth.store(session, text, NewToken(Role.WORKER, "pool", tier=tier), self.world.clock())
        return text

    def worker(self, name="w1", tier="gpu", token=None, *, registered=True):
        made = PoolWorker(self.http, token or self.token(tier), name, tier)
        if registered:
            answer = made.register()
            assert answer.status_code == 200, answer.text
        self.workers.append(made)
        return made

    def submit(self, body, name="exp", **spec):
        """An experiment on tier gpu (or another); its run."""
        self.world.clock.now += 1
        body = body.model_copy(update={"spec": {**body.spec, "tier": "gpu", **spec}})
        return resources.put(self.world, resources.Put(Address("experiment", name), body, None)).run.run_id

    def status(self, run_id):
        with self.world.store.read() as session:
            return runs.status(session, self.world, run_id)


def auth_version():
    from arena_runner.server.world import VERSION

    return VERSION


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def started(members=1):
    event = {"type": "started", "device": "cpu", "dtype": "float32", "threads": 1, "rows_in_flight": 1}
    return event | {
        "tokens_per_backward": 1,
        "versions": {},
        "model": None,
        "members": members,
        "max_steps": 16,
    }


def said(text="…"):
    return {"type": "log", "level": "info", "message": text}


def finished(state="completed", **more):
    return {"type": "finished", "state": state, **more}


def code(answer):
    """The code of a refusal."""
    return json.loads(answer.text)["code"]
