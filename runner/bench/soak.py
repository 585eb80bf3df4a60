"""Minutes of a bad day: submit, stop, ask for more, kill workers and the server, all at random from a seed.

    python runner/bench/soak.py [--seed 7] [--minutes 2] [--database postgresql://…]

The worker speaks the real protocol and trains nothing, so that much happens in little time. At the end nobody
disturbs any more, everything must come to rest, and every run must be accounted for. Prints one JSON object; exit 1
if something is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from servers import announced, started

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.wire import Owner, PutResource

WORKER = Path(__file__).resolve().parents[2] / "tests" / "runner" / "server" / "scripted_worker.py"
STEP = 8
"""of the scripted worker"""
REST_S = 90.0
ENDED = {"completed", "stopped", "failed"}


@dataclass
class Wish:
    """What was asked of one experiment."""

    steps: int
    run: str
    stopped: bool = False


@dataclass
class Day:
    """One server, what was asked of it, and what was done to it."""

    home: Path
    database: str | None
    dice: random.Random
    process: subprocess.Popen[bytes] | None = None
    http: httpx.Client | None = None
    wishes: dict[str, Wish] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Start the server, or start it again."""
        settings = {"worker": {"command": [sys.executable, str(WORKER)]}}
        tier = {"id": "local", "num_cpus": 2, "ram_gb": 4, "credits_per_node_hour": 1, "slots": 4}
        (self.home / "settings.yaml").write_text(json.dumps(settings))
        (self.home / "tiers.yaml").write_text(json.dumps({"tiers": [tier]}))
        database = {"ARENA_DATABASE_URL": self.database} if self.database else {}
        self.process = started(self.home, **database)
        note = announced(self.process, self.home)
        headers = {"Authorization": f"Bearer {note['token']}"}
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{note['port']}", headers=headers, timeout=30, trust_env=False
        )

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A call as a patient client makes it: again, with the same key, until there is an answer."""
        for _ in range(100):
            assert self.http is not None
            try:
                answer = self.http.request(method, path, **options)
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            if answer.status_code < 500:
                return answer
            self.problems.append(f"{method} {path} answered {answer.status_code}: {answer.text[:200]}")
        raise SystemExit(f"{method} {path}: no answer")

    def end(self) -> None:
        """Stop the server in good order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def put(day: Day, name: str, steps: int, etag: str | None, key: str) -> dict[str, Any]:
    """PUT an experiment; what it trains depends on its name only, so that more steps continue its run."""
    manifest = {"algorithm": {"name": "GRPO"}, "training": {"max_steps": steps}}
    manifest |= {"script": {"pause_s": 0.15, "members": 1}}
    spec = {"project": "soak", "manifest": manifest, "inputs": {}, "model": {"id": "tiny"}}
    body = PutResource(owner=Owner(stack="soak"), spec=spec, fingerprint=fingerprint({"name": name}, {}))
    headers = {"Idempotency-Key": key, **({"If-Match": etag} if etag else {})}
    path = f"/api/v1/resources/experiment/{name}"
    answer = day.ask("PUT", path, json=body.model_dump(mode="json"), headers=headers)
    if answer.status_code != 200:
        day.problems.append(f"PUT {name}: {answer.status_code} {answer.text[:200]}")
    found: dict[str, Any] = answer.json()
    return found


def state(day: Day) -> dict[str, dict[str, Any]]:
    """Every experiment by name."""
    found = day.ask("GET", "/api/v1/state", params={"stack": "soak"}).json()["resources"]
    return {resource["name"]: resource for resource in found}


def submit(day: Day) -> None:
    """A new experiment."""
    name = f"exp-{len(day.wishes)}"
    steps = STEP * day.dice.randint(2, 12)
    made = put(day, name, steps, None, f"make-{name}")
    day.wishes[name] = Wish(steps, made["run"]["run_id"])


def stop(day: Day) -> None:
    """Ask any run to stop."""
    if day.wishes:
        wish = day.dice.choice(list(day.wishes.values()))
        answer = day.ask("POST", f"/api/v1/runs/{wish.run}/stop").json()
        wish.stopped = wish.stopped or answer["state"] != "completed"


def more(day: Day) -> None:
    """Ask for more steps: a stopped or completed run goes on."""
    if day.wishes:
        name = day.dice.choice(list(day.wishes))
        wish, known = day.wishes[name], state(day)[name]
        wish.steps += STEP * day.dice.randint(1, 4)
        wish.stopped = False
        made = put(day, name, wish.steps, known["etag"], f"more-{name}-{wish.steps}")
        wish.run = made["run"]["run_id"]


def kill_worker(day: Day) -> None:
    """SIGKILL one worker."""
    workers = [p for p in psutil.process_iter(["cmdline"]) if _works_for(p, day.home)]
    if workers:
        day.dice.choice(workers).kill()


def kill_server(day: Day) -> None:
    """SIGKILL the server and start it again; its workers live on."""
    assert day.process is not None
    day.process.kill()
    day.process.wait()
    day.start()


def restart_server(day: Day) -> None:
    """Stop the server in good order and start it again."""
    day.end()
    day.start()


def _works_for(process: psutil.Process, home: Path) -> bool:
    line = process.info["cmdline"] or []
    return str(WORKER) in line and any(str(home) in part for part in line)


ACTIONS: dict[Callable[[Day], None], int] = {
    submit: 10,
    stop: 3,
    more: 3,
    kill_worker: 5,
    kill_server: 1,
    restart_server: 1,
}


def rest(day: Day) -> dict[str, dict[str, Any]]:
    """Wait until every run has ended."""
    deadline = time.monotonic() + REST_S
    while True:
        found = state(day)
        if all(resource["run"]["state"] in ENDED for resource in found.values()):
            return found
        if time.monotonic() > deadline:
            day.problems.append(f"no rest within {REST_S:g} s")
            return found
        time.sleep(0.5)


def account(day: Day, found: dict[str, dict[str, Any]]) -> None:
    """Every experiment has its one run, and every run ended for a reason."""
    if set(found) != set(day.wishes):
        day.problems.append(f"experiments differ: {set(found) ^ set(day.wishes)}")
    runs = [resource["run"]["run_id"] for resource in found.values()]
    if len(set(runs)) != len(day.wishes):
        day.problems.append("experiments share runs, or have none")
    for name, wish in day.wishes.items():
        if name in found:
            day.problems += [f"{name}: {problem}" for problem in _of_run(day, wish, found[name]["run"])]


def _of_run(day: Day, wish: Wish, run: dict[str, Any]) -> list[str]:
    problems = []
    if run["run_id"] != wish.run:
        problems.append(f"has run {run['run_id']} instead of {wish.run}")
    good = {"completed", "stopped"} if wish.stopped else {"completed"}
    if run["state"] not in good:
        problems.append(f"ended {run['state']}: {run['message']}")
    if run["state"] == "completed" and run["step"] != wish.steps:
        problems.append(f"completed at step {run['step']} of {wish.steps}")
    events = [json.loads(line) for line in _events(day, run["run_id"])]
    if [event["index"] for event in events] != list(range(1, len(events) + 1)):
        problems.append("its events have gaps or repeats")
    blobs = {digest for checkpoint in run["checkpoints"] for digest in checkpoint["files"].values()}
    lost = (blob for blob in blobs if day.ask("HEAD", f"/api/v1/blobs/{blob}").status_code != 200)
    return [*problems, *(f"{blob} is lost" for blob in lost)]


def _events(day: Day, run: str) -> list[str]:
    return day.ask("GET", f"/api/v1/runs/{run}/events").text.splitlines()


def live(day: Day, minutes: float) -> dict[str, Any]:
    """Disturb, rest, account."""
    day.start()
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        (action,) = day.dice.choices(list(ACTIONS), list(ACTIONS.values()))
        action(day)
        day.done[action.__name__] += 1
        time.sleep(day.dice.random() * 0.4)
    found = rest(day)
    account(day, found)
    day.end()
    left = [process.pid for process in psutil.process_iter(["cmdline"]) if _works_for(process, day.home)]
    if left:
        day.problems.append(f"workers outlived the server: {left}")
    ends = Counter(resource["run"]["state"] for resource in found.values())
    segments = sum(resource["run"]["segments"] for resource in found.values())
    return {"done": dict(day.done), "runs": dict(ends), "segments": segments, "problems": day.problems}


def main() -> None:
    """Parse, live, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--database", help="address of an empty PostgreSQL database; default: SQLite")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="arena-soak-") as folder:
        day = Day(Path(folder), given.database, random.Random(given.seed))  # noqa: S311 - dice, not keys
        told = live(day, given.minutes)
    print(json.dumps({"seed": given.seed, "minutes": given.minutes, **told}, indent=1))
    raise SystemExit(1 if told["problems"] else 0)


if __name__ == "__main__":
    main()
