"""Actions a second and their latency: through `get_action` of a whole server, and of the policy server alone.

    python runner/bench/acting.py [--seconds 5]

Three measures of a small policy (two hidden layers of 64): the policy itself without HTTP, the policy server, one
request at a time and 16 callers at once, alone and in batches. CPU seconds are of the policy server only; "a core" is a
CPU second of it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import httpx
import numpy as np
import psutil
import torch

from arena_gitops.spec.manifest import parse_manifest
from arena_runner.opening_classic import maths
from arena_runner.policies.crew import POLICY, SPEC, Crew
from arena_runner.policies.design import plan
from arena_runner.policies.spaces import Choice, Spaces, Vector
from arena_runner.serving.policy import Policy
from arena_runner.serving.policy_files import read_policy
from arena_runner.serving.policy_protocol import Act

SEES = 8
RAW = {
    "algorithm": {"name": "PPO"},
    "environment": {"name": "CartPole-v1"},
    "training": {"max_steps": 1000, "evo_steps": 100},
    "network": {
        "latent_dim": 64,
        "encoder_config": {"hidden_size": [64]},
        "head_config": {"hidden_size": [64]},
    },
}


def main() -> None:
    """A line for every measure."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=5.0)
    seconds = options.parse_args().seconds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        saved(folder)
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, torch {torch.__version__}")
        policy = Policy(read_policy((folder / POLICY).read_bytes(), (folder / SPEC).read_bytes()))
        for rows in (1, 16, 256):
            print(bare(policy, rows, seconds))
        with served(folder) as server:
            for rows, callers in ((1, 1), (1, 16), (16, 1), (256, 1)):
                print(server.measured(rows, callers, seconds))


def saved(folder: Path) -> None:
    """A fresh policy, as a run exports it."""
    manifest = parse_manifest(RAW).manifest
    space = Spaces(sees={"obs": Vector(size=SEES)}, does=Choice(sizes=(4,), starts=(0,), single=True))
    rules = maths(manifest.algorithm)
    designs = rules.networks(plan(manifest.network, space.sees), space.does, manifest.algorithm)
    crew = Crew(rules, designs, manifest.algorithm, manifest.classic, space, members=1, seed=0)
    crew.save(0, folder)


def body(rows: int) -> dict[str, object]:
    """An observation as clients send it."""
    into = io.BytesIO()
    np.save(into, np.random.default_rng(0).normal(size=(rows, SEES)).astype(np.float32))
    return {"adapter": "p", "obs": base64.b64encode(into.getvalue()).decode(), "batch_size": rows}


def bare(policy: Policy, rows: int, seconds: float) -> str:
    """Without HTTP."""
    asked = Act.model_validate(body(rows))
    times, until, cpu = [], time.monotonic() + seconds, time.process_time()
    while time.monotonic() < until:
        at = time.monotonic()
        policy.act(asked)
        times.append(time.monotonic() - at)
    return told(f"policy alone, batches of {rows}", rows, times, time.process_time() - cpu, seconds)


class served:  # noqa: N801 - reads as `with served(folder)`
    """The policy server as the control plane starts it, with one policy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        token, ready = secrets.token_hex(8), self._folder / "ready.json"
        command = [sys.executable, "-m", "arena_runner.cli", "serve-policies", "--ready-file", str(ready)]
        environment = {**os.environ, "ARENA_MODEL_SERVER_TOKEN": token, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [*command, "--token-env", "ARENA_MODEL_SERVER_TOKEN"], env=environment
        )
        while not ready.exists():
            time.sleep(0.1)
        where = json.loads(ready.read_text())
        self._url = where.get("url") or f"http://127.0.0.1:{where['port']}"
        self._headers = {"Authorization": f"Bearer {token}"}
        files = {
            name: {
                "path": str(self._folder / name),
                "digest": "sha256:" + hashlib.sha256((self._folder / name).read_bytes()).hexdigest(),
            }
            for name in (POLICY, SPEC)
        }
        answer = httpx.post(
            f"{self._url}/adapters", json={"name": "p", "files": files}, headers=self._headers, timeout=60
        )
        answer.raise_for_status()
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        self._process.wait()

    def measured(self, rows: int, callers: int, seconds: float) -> str:
        """So many callers, each one request after the other."""
        content = json.dumps(body(rows)).encode()
        times: list[float] = []
        until = time.monotonic() + seconds

        def call() -> None:
            with httpx.Client(
                headers={**self._headers, "content-type": "application/json"}, timeout=30
            ) as http:
                while time.monotonic() < until:
                    at = time.monotonic()
                    http.post(f"{self._url}/act", content=content).raise_for_status()
                    times.append(time.monotonic() - at)

        who = psutil.Process(self._process.pid)
        before, threads = sum(who.cpu_times()[:2]), [threading.Thread(target=call) for _ in range(callers)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        cpu = sum(who.cpu_times()[:2]) - before
        return told(f"policy server, batches of {rows}, {callers} at once", rows, times, cpu, seconds)


def told(what: str, rows: int, times: list[float], cpu: float, seconds: float) -> str:
    """Actions by wall and by CPU second, and percentiles."""
    cuts = statistics.quantiles(times, n=100)
    actions = len(times) * rows
    return (
        f"{what}: {actions / seconds:,.0f} actions/s, {actions / cpu:,.0f} per CPU-s; "
        f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms ({len(times)} requests)"
    )


if __name__ == "__main__":
    main()
