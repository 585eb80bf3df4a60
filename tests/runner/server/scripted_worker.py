"""A worker that speaks the real protocol and trains nothing: `manifest.script` says what it does.

script: {iterations, members, pause_s, die_in: [segment, iteration], die_at: [call of segment 0, "before" or "after"],
finish: {state, reason, message}, ignore_term, adapters: folder of real ones, m0, m1 …}
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import httpx

STEP = 8


class Worker:
    def __init__(self, server, run):
        headers = {"Authorization": f"Bearer {os.environ['ARENA_WORKER_TOKEN']}"}
        self.http = httpx.Client(base_url=server, headers=headers, timeout=10)
        self.run, self.seq, self.stop = run, 0, False
        self.job, self.calls = None, 0

    def call(self, method, path, **kwargs):
        self.calls += 1
        self.die_if_told("before")
        for _ in range(600):  # as long as a server may take to come back
            try:
                answer = self.http.request(method, path, **kwargs)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code < 500:
                self.die_if_told("after")
                return answer
            time.sleep(0.1)
        raise SystemExit("the server is gone")

    def die_if_told(self, moment):
        """Be killed at that moment of that call; until the claim has been answered nothing is known of it."""
        if self.job is None or self.job["segment"] > 0:
            return
        if self.job["manifest"].get("script", {}).get("die_at") == [self.calls, moment]:
            os.kill(os.getpid(), signal.SIGKILL)

    def claim(self):
        body = {"worker_id": f"scripted-{os.getpid()}", "tier": "local", "run_id": self.run}
        answer = self.call("POST", "/api/v1/workers/claim", json=body)
        if answer.status_code == 204:
            sys.exit(0)
        answer.raise_for_status()
        self.job, self.fence = answer.json()["job"], answer.json()["fence"]
        self.die_if_told("after")

    def blob(self, data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.call("PUT", f"/api/v1/blobs/{digest}", content=data).raise_for_status()
        return digest

    def emit(self, *events):
        batch = []
        for event in events:
            self.seq += 1
            batch.append({"seq": self.seq, "ts": time.time(), **event})
        path = f"/api/v1/workers/jobs/{self.run}/{self.job['segment']}/events"
        answer = self.call("POST", path, json={"fence": self.fence, "events": batch})
        if answer.status_code == 409:
            sys.exit(3)
        answer.raise_for_status()
        self.stop = self.stop or answer.json()["directive"] == "stop"

    def train(self):
        script = self.job["manifest"].get("script", {})
        members = script.get("members", 2)
        max_steps = self.job["manifest"]["training"]["max_steps"]
        limit = self.job["limits"]["max_steps"]
        max_steps = min(max_steps, limit) if limit else max_steps
        resume = self.job["resume"]
        first = resume["iteration"] if resume else 0
        started = {"type": "started", "device": "cpu", "dtype": "float32", "threads": 1, "rows_in_flight": 8}
        started |= {"tokens_per_backward": 64, "versions": {}, "model": None, "members": members}
        self.emit(started | {"max_steps": max_steps, "resumed_at_iteration": first or None})
        sys.stdout.write(f"segment {self.job['segment']} from iteration {first}\n")
        sys.stdout.flush()
        for iteration in range(first + 1, max_steps // STEP + 1):
            if [self.job["segment"], iteration] in script.get("die_in", []):
                self.emit(*self.figures(iteration, members, max_steps))
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(script.get("pause_s", 0.0))
            self.iterate(iteration, members, max_steps)
            if self.stop:
                self.finish({"state": "stopped"})
                return
        self.finish(script.get("finish", {"state": "completed"}))

    def figures(self, iteration, members, max_steps):
        step = iteration * STEP
        for m in range(members):
            reward = iteration / 10 + m / 100
            yield {
                "type": "progress", "member": m, "step": step, "max_steps": max_steps, "iteration": iteration,
                "reward": reward, "tokens_per_second": 10.0, "eta_seconds": 1.0,
            }  # fmt: skip
            values = {"reward/mean": reward, "hp/lr": 0.001, "segment": float(self.job["segment"])}
            yield {"type": "metrics", "member": m, "step": step, "values": values}

    def iterate(self, iteration, members, max_steps):
        step = iteration * STEP
        events = list(self.figures(iteration, members, max_steps))
        for m in range(members):
            fitness = iteration / 10 + m / 100
            evaluation = {"type": "evaluation", "member": m, "step": step, "generation": iteration}
            events.append(evaluation | {"fitness": fitness, "values": {"correct": fitness}})
        last = iteration == max_steps // STEP
        for m in range(members) if last else [members - 1]:
            data = json.dumps({"member": m, "step": step}).encode()
            contents = {"adapter_model.safetensors": data, "adapter_config.json": b"{}"}
            if folder := self.job["manifest"].get("script", {}).get("adapters"):
                contents = {name: (Path(folder) / f"m{m}" / name).read_bytes() for name in contents}
            files = {name: self.blob(content) for name, content in contents.items()}
            digest = "sha256:" + hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
            checkpoint = {
                "step": step,
                "member": m,
                "generation": iteration,
                "digest": digest,
                "files": files,
            }
            checkpoint |= {"fitness": iteration / 10 + m / 100, "size_bytes": len(data)}
            checkpoint["hyperparameters"] = {"lr": 0.001}
            events.append({"type": "checkpoint", "checkpoint": checkpoint})
        records = [self.lineage(iteration, step, m, members) for m in range(members)]
        events.append({"type": "evolution", "generation": iteration, "records": records})
        state = self.blob(json.dumps({"run": self.run, "iteration": iteration}).encode())
        resume = {"iteration": iteration, "files": {"state": state}}
        events.append({"type": "resume_state", "state": resume})
        self.emit(*events)

    @staticmethod
    def lineage(generation, step, member, members):
        record = {"generation": generation, "step": step, "member": member, "parent": members - 1}
        record |= {"mutation": "lr" if member == 0 else None, "old": 0.001, "new": 0.002}
        return record | {"fitness": 0.1, "parent_fitness": 0.2}

    def finish(self, finished):
        self.emit({"type": "finished", **finished})


def main():
    parser = argparse.ArgumentParser()
    for name in ("--server", "--run", "--workdir"):
        parser.add_argument(name)
    given = parser.parse_args()
    worker = Worker(given.server, given.run)
    worker.claim()
    worker.train()


if __name__ == "__main__":
    main()
