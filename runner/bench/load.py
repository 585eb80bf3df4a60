"""Load on one server process: `GET state` at a fixed rate, then submissions side by side. Prints one JSON object.

    python runner/bench/load.py [--database postgresql://…] [--resources 1000] [--rate 100] [--seconds 30]

The server is started in a folder of its own, without MLflow and without a worker, and asked over loopback by this
process. A request's time begins when it was due, so that a queue at the server is part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from servers import running

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.wire import Owner, PutResource

OWNER = Owner(stack="load")
TIERS = {"tiers": [{"id": "t", "executor": "pull", "num_cpus": 1, "ram_gb": 1, "credits_per_node_hour": 0}]}
KINDS = ("project", "dataset", "reward", "experiment")


@dataclass(frozen=True)
class Site:
    """The server under load."""

    url: str
    headers: dict[str, str]
    pid: int


@contextmanager
def server(home: Path, database: str | None) -> Iterator[Site]:
    """Start one; stop it at the end."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "tiers.yaml").write_text(json.dumps(TIERS))
    with running(home, **({"ARENA_DATABASE_URL": database} if database else {})) as (url, headers, process):
        yield Site(url, headers, process.pid)


def body(kind: str, name: str) -> dict[str, Any]:
    """A resource of some size, as an apply would PUT it."""
    spec: dict[str, Any] = {"description": f"{kind} {name}", "labels": {"team": "load"}}
    if kind == "experiment":
        manifest = {
            "algorithm": {"name": "GRPO"},
            "training": {"max_steps": 64},
            "mutation": {"rand_seed": 1},
        }
        spec |= {"project": "p0", "manifest": manifest, "inputs": {}, "model": {"id": "tiny"}}
    put = PutResource(owner=OWNER, spec=spec, fingerprint=fingerprint({"name": name}, {}))
    return put.model_dump(mode="json")


async def put(client: httpx.AsyncClient, kind: str, name: str, key: str | None = None) -> httpx.Response:
    """One PUT."""
    headers = {"Idempotency-Key": key} if key else {}
    return await client.put(f"/api/v1/resources/{kind}/{name}", json=body(kind, name), headers=headers)


async def fill(client: httpx.AsyncClient, count: int) -> None:
    """So many resources, one in ten an experiment with a run that waits."""
    gate = asyncio.Semaphore(8)

    async def one(number: int) -> None:
        kind = "experiment" if number % 10 == 0 else KINDS[number % 3]
        async with gate:
            (await put(client, kind, f"{kind}-{number}")).raise_for_status()

    await asyncio.gather(*(one(number) for number in range(count)))


async def states(client: httpx.AsyncClient, rate: int, seconds: float) -> dict[str, Any]:
    """`GET state` at a fixed rate by somebody who has it already."""
    first = await client.get("/api/v1/state", params={"stack": OWNER.stack})
    headers = {"If-None-Match": first.headers["etag"]}
    began, times, statuses = time.perf_counter() + 0.5, [], []

    async def one(number: int) -> None:
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        answer = await client.get("/api/v1/state", params={"stack": OWNER.stack}, headers=headers)
        times.append(time.perf_counter() - due)
        if answer.status_code == 200:  # controllers may still be busy with what was made
            headers["If-None-Match"] = answer.headers["etag"]
        statuses.append(answer.status_code)

    await asyncio.gather(*(one(number) for number in range(int(rate * seconds))))
    return {"resources": len(first.json()["resources"]), "bytes": len(first.content)} | summary(
        times, statuses
    )


async def submissions(client: httpx.AsyncClient, count: int, clients: int) -> dict[str, Any]:
    """Experiments submitted side by side, each sent twice under one key as an impatient client does."""
    names = iter(f"submitted-{number}" for number in range(count))
    times, statuses, runs = [], [], []

    async def one_client() -> None:
        for name in names:
            began = time.perf_counter()
            answer = await put(client, "experiment", name, key=f"key-{name}")
            times.append(time.perf_counter() - began)
            again = await put(client, "experiment", name, key=f"key-{name}")
            statuses.extend((answer.status_code, again.status_code))
            runs.extend({answer.json()["run"]["run_id"], again.json()["run"]["run_id"]})

    await asyncio.gather(*(one_client() for _ in range(clients)))
    state = (await client.get("/api/v1/state", params={"stack": OWNER.stack})).json()
    stored = [r["run"]["run_id"] for r in state["resources"] if r["name"].startswith("submitted-")]
    told = {"runs": len(set(stored)), "duplicates": len(runs) - len(set(stored)), "clients": clients}
    return told | summary(times, statuses)


def summary(times: list[float], statuses: list[int]) -> dict[str, Any]:
    """Figures in milliseconds."""
    ordered = sorted(times)
    at = {name: round(1000 * ordered[int(share * (len(ordered) - 1))], 1) for name, share in SHARES.items()}
    return {
        "requests": len(times),
        "ms": at,
        "statuses": {s: statuses.count(s) for s in sorted(set(statuses))},
    }


SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


async def measure(site: Site, given: argparse.Namespace) -> dict[str, Any]:
    """Everything, one after the other."""
    limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
    options: Any = {"base_url": site.url, "headers": site.headers, "limits": limits, "timeout": 60}
    async with httpx.AsyncClient(**options, trust_env=False) as client:
        await fill(client, given.resources)
        before = cpu_s(site)
        told: dict[str, Any] = {"state": await states(client, given.rate, given.seconds)}
        told["state"]["server_cpu_ms"] = round(1000 * (cpu_s(site) - before) / told["state"]["requests"], 1)
        told["submissions"] = await submissions(client, given.submissions, given.clients)
    told["server_rss_mib"] = round(psutil.Process(site.pid).memory_info().rss / 2**20)
    return told


def cpu_s(site: Site) -> float:
    """What the server has computed so far: a figure that other programs on the machine do not change."""
    times = psutil.Process(site.pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--database", help="address of an empty PostgreSQL database; default: SQLite")
    for name, value in (("resources", 1000), ("rate", 100), ("submissions", 100), ("clients", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="arena-load-") as folder:
        began = time.monotonic()
        with server(Path(folder), given.database) as site:
            ready = time.monotonic() - began
            told = asyncio.run(measure(site, given))
    kind = "postgresql" if given.database else "sqlite"
    print(
        json.dumps({"database": kind, "ready_s": round(ready, 1), "cores": os.cpu_count(), **told}, indent=1)
    )


if __name__ == "__main__":
    main()
