"""Promotions and rollbacks while clients stream: what is lost, what is mixed up, how long a switch takes. One JSON object.

    python runner/bench/promotions.py [--switches 200] [--clients 4] [--deployments 10] [--model FOLDER]

A real server and a real model server on loopback; the adapters are random and strong, so that each revision has answers
of its own. An answer counts only if it is, to the letter, what the revision named in it says to that prompt. A switch ends
with the first text of the first answer of the new revision. It begins when the promotion or rollback is sent, for an
adapter that is loaded and was proved (`resident`); for any other when its proof has passed, by the server's own log
(`after_proof`). At the end the model server is killed once, and its memory is compared for one and for `--deployments`
deployments.
Without `--model`: a random model of two layers. Exit 1 if anything failed or was mixed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
from servers import running

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.wire import Owner, PutResource

TESTS = Path(__file__).resolve().parents[2] / "tests"
OWNER = Owner(stack="bench")
ADAPTERS = 4
PROMPTS = ("2 and 2", "Who are you?", "Tell me a word.", "ab")
TOKENS = 24


def make_adapters(model: Path, folder: Path, strength: float = 0.1) -> None:
    """Write random adapters in PEFT's format; strong, so that greedy answers differ."""
    import torch

    from arena_runner.adapters import Population
    from arena_runner.models import load_base

    base = load_base(str(model), dtype=torch.float32)
    population = Population.attach(
        base, targets=["q_proj", "v_proj"], ranks=[8] * ADAPTERS, alphas=[16.0] * ADAPTERS
    )
    generator = torch.Generator().manual_seed(0)
    for member in range(ADAPTERS):
        weights = {
            name: torch.randn(tensor.shape, generator=generator) * strength
            for name, tensor in population.export(member).items()
        }
        population.load(member, weights)
        population.save(member, folder / f"m{member}")


@dataclass
class Site:
    """One server with a client for people and the key for programs."""

    http: httpx.Client
    url: str
    key: str
    home: Path
    etags: dict[str, str] = field(default_factory=dict)
    member: int = -1
    """that the file of `live` names"""

    def another(self, serving: str | None) -> dict[str, Any]:
        """The next member that neither serves nor stands in the file: that would leave the hold of a rollback."""
        file = self.member
        while self.member == file or deployment(self.member)["checkpoint"] == serving:
            self.member = (self.member + 1) % ADAPTERS
        return deployment(self.member)

    def put(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """Apply one resource."""
        body = PutResource(owner=OWNER, spec=spec, fingerprint=fingerprint(spec, {}))
        headers = {"If-Match": self.etags[name]} if name in self.etags else {}
        path = f"/api/v1/resources/{kind}/{name}"
        answer = self.http.put(path, json=body.model_dump(mode="json"), headers=headers)
        answer.raise_for_status()
        self.etags[name] = answer.json()["etag"]

    def rollback(self, name: str) -> None:
        """Back to what served before."""
        owner = OWNER.model_dump(mode="json")
        self.http.post(f"/api/v1/deployments/{name}/rollback", json={"owner": owner}).raise_for_status()

    def speaks(self, name: str) -> tuple[int, float]:
        """Ask for one token: the revision that gave it, and when it came."""
        asked = [{"role": "user", "content": "ab"}]
        body = {"model": name, "messages": asked, "stream": True, "max_tokens": 1, "temperature": 0}
        with self.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                return 0, time.time()
            revision = int(answer.headers["x-arena-served-by"].split()[0].partition("@")[2])
            for line in answer.iter_lines():
                if line.startswith("data: {") and _speaks(json.loads(line[6:])):
                    return revision, time.time()
        raise SystemExit("a stream without a token")

    def proved(self, name: str, revision: int) -> float | None:
        """When its proof had passed, if it was asked for one."""
        words = f"deployment {name}: r{revision} is proved"
        for line in reversed((self.home / "server.log").read_text().splitlines()):
            if words in line:
                stamp, _, thousandths = line[:23].partition(",")
                return time.mktime(time.strptime(stamp, "%Y-%m-%d %H:%M:%S")) + int(thousandths) / 1000
        return None

    def serves(self, name: str) -> dict[str, Any]:
        """What `/v1/models` says of it; nothing while it does not serve."""
        answer = self.http.get(f"/v1/models/{name}")
        found: dict[str, Any] = answer.json()["arena"] if answer.status_code == 200 else {}
        return found

    def model_server(self) -> psutil.Process:
        """Its process."""
        record = next((self.home / "processes").glob("model-*.json"))
        return psutil.Process(json.loads(record.read_text())["pid"])


def _speaks(chunk: dict[str, Any]) -> bool:
    """Whether it has text, or says that the one token was none that is shown; a role is said before any token."""
    return any(choice["delta"].get("content") or choice["finish_reason"] for choice in chunk["choices"])


@contextmanager
def site(home: Path, model: Path, adapters: Path) -> Iterator[Site]:
    """A server whose scripted worker has exported the adapters as members of one run."""
    worker = [sys.executable, str(TESTS / "runner" / "server" / "scripted_worker.py")]
    serve = [sys.executable, "-m", "arena_runner.cli", "serve", "--dtype", "float32"]
    settings = {"worker": {"command": worker}, "model_server": {"command": serve}}
    (home / "settings.yaml").write_text(json.dumps(settings))
    with (
        running(home) as (url, headers, _),
        httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http,
    ):
        made = Site(http, url, headers["Authorization"].split()[1], home)
        script = {"members": ADAPTERS, "adapters": str(adapters)}
        manifest = {"algorithm": {"name": "GRPO"}, "training": {"max_steps": 8}, "script": script}
        made.put("experiment", "bench", {"manifest": manifest, "inputs": {}, "model": {"id": str(model)}})
        yield made


def until(condition: Callable[[], Any], seconds: float = 120.0, pause_s: float = 0.005) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit("it did not happen in time")
        time.sleep(pause_s)
    return found


def deployment(member: int) -> dict[str, Any]:
    """A deployment of one member."""
    return {"experiment": "bench", "checkpoint": f"step_8/m{member}"}


@dataclass
class Crowd:
    """Clients that stream without a pause, and what they saw."""

    site: Site
    expected: dict[tuple[str, str], str]
    """(checkpoint, prompt) → answer"""
    seen: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def client(self, number: int) -> None:
        """One of them."""
        with openai.OpenAI(base_url=f"{self.site.url}/v1", api_key=self.site.key, max_retries=0) as client:
            turn = number
            while not self.stop.is_set():
                turn += 1
                try:
                    self.judge(*answer(client, PROMPTS[turn % len(PROMPTS)]))
                except openai.APIStatusError as problem:
                    again = problem.response.headers.get("retry-after")
                    self.note(f"status {problem.status_code}", f"retry-after {again}: {problem.message}")
                    time.sleep(0.05)
                except openai.APIError as problem:
                    self.note("broken off", str(problem))

    def judge(self, prompt: str, text: str, prints: set[str]) -> None:
        """Right only if one revision spoke, and said what it says."""
        labels = {label.split()[1] for label in prints}
        right = len(prints) == 1 and text == self.expected[labels.pop(), prompt]
        self.note("ok" if right else "mixed", "" if right else f"{prints} {text!r}")

    def note(self, what: str, example: str) -> None:
        """Count it; keep a few of what went wrong."""
        self.seen[what] += 1
        if what != "ok" and len(self.examples) < 5:
            self.examples.append(f"{what}: {example}")


def answer(client: openai.OpenAI, prompt: str, model: str = "live") -> tuple[str, str, set[str]]:
    """Prompt, streamed text, and every revision that a chunk names."""
    asked = [{"role": "user", "content": prompt}]
    stream = client.chat.completions.create(
        model=model, messages=asked, stream=True, temperature=0, max_tokens=TOKENS
    )
    text, prints = "", set()
    for chunk in stream:
        prints.add(chunk.system_fingerprint or "none")
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    return prompt, text, prints


def learn(live: Site) -> dict[tuple[str, str], str]:
    """What every member says to every prompt, asked alone, from a deployment that is gone again afterwards."""
    expected = {}
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key=live.key, max_retries=0) as client:
        for member in range(ADAPTERS):
            live.put("deployment", "school", deployment(member))
            until(lambda member=member: live.serves("school").get("checkpoint") == f"step_8/m{member}", 120)
            for prompt in PROMPTS:
                expected[f"step_8/m{member}", prompt] = answer(client, prompt, "school")[1]
    return expected


@dataclass(frozen=True)
class Switch:
    """One promotion or rollback."""

    kind: str
    asked_s: float
    """until the server had answered the promotion or rollback itself"""
    seconds: float
    """to the first text of the first answer of the new revision"""


def switch(live: Site, number: int) -> Switch:
    """One promotion or, every second time once all have served, one rollback."""
    before = live.serves("live")
    back = number >= ADAPTERS and number % 2 == 1
    began = time.time()
    if back:
        live.rollback("live")
    else:
        live.put("deployment", "live", live.another(before.get("checkpoint")))
    asked = time.time() - began
    revision, seen = until(lambda: (s := live.speaks("live"))[0] not in {0, before.get("revision", 0)} and s)
    proved = live.proved("live", revision)
    if proved is not None and proved > began:
        return Switch("after_proof", asked, seen - proved)
    return Switch("rollback" if back else "promotion", asked, seen - began)


def under_load(live: Site, switches: int, clients: int) -> dict[str, Any]:
    """Switch while everybody streams; then kill the model server once."""
    crowd = Crowd(live, learn(live))
    done = [switch(live, 0)]  # before it there is nobody to ask
    threads = [threading.Thread(target=crowd.client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    done += [switch(live, number) for number in range(1, switches + 1)]
    found = dict(crowd.seen)
    killed = after_kill(live, crowd)
    crowd.stop.set()
    for thread in threads:
        thread.join()
    failed = sum(count for what, count in found.items() if what not in {"ok", "mixed"})
    return {
        "answers": found.get("ok", 0),
        "failed": failed,
        "mixed": crowd.seen["mixed"],
        "switch_ms": figures(done),
        "killed": killed,
        "examples": crowd.examples,
    }


def figures(done: list[Switch]) -> dict[str, Any]:
    """By kind: how many, and how long they took; for residents also what the request itself took."""
    kinds = {kind: [s for s in done if s.kind == kind] for kind in ("promotion", "rollback", "after_proof")}
    found: dict[str, Any] = {}
    for kind, some in kinds.items():
        if some:
            found[kind] = {"count": len(some), **milliseconds([s.seconds for s in some])}
            if kind != "after_proof":
                found[kind]["asked"] = milliseconds([s.asked_s for s in some])
    return found


def milliseconds(taken: list[float]) -> dict[str, float]:
    """Median, 95th percentile and the longest, and the share that took 100 at most."""
    ordered = sorted(taken)
    picks = {
        "p50": statistics.median(ordered),
        "p95": ordered[int(0.95 * (len(ordered) - 1))],
        "max": ordered[-1],
    }
    found = {name: round(value * 1000, 1) for name, value in picks.items()}
    return {**found, "within_100": round(sum(value <= 0.1 for value in ordered) / len(ordered), 3)}


def after_kill(live: Site, crowd: Crowd) -> dict[str, Any]:
    """`kill -9` of the model server: what callers are told, and how long until they are answered again."""
    before, good = Counter(crowd.seen), crowd.seen["ok"]
    began = time.perf_counter()
    os.kill(live.model_server().pid, signal.SIGKILL)
    until(lambda: crowd.seen["status 503"] > before["status 503"], 60)
    good = crowd.seen["ok"]
    until(lambda: crowd.seen["ok"] > good, 180)
    told = {
        what: count - before[what]
        for what, count in crowd.seen.items()
        if what != "ok" and count > before[what]
    }
    return {"back_after_s": round(time.perf_counter() - began, 1), "meanwhile": told}


def memory(live: Site, deployments: int) -> dict[str, Any]:
    """Private and shared bytes of the model server with one deployment, then with many; each has answered."""
    ask = {"prompts": ["ab"], "params": {"max_new_tokens": 8}}

    def answers(name: str) -> bool:
        return live.http.post(f"/i/{name}/generate", json=ask).status_code == 200

    until(lambda: answers("live"))
    one = live.model_server().memory_full_info().pss
    for number in range(1, deployments):
        live.put("deployment", f"d{number}", deployment(number % ADAPTERS))
    for number in range(1, deployments):
        until(lambda number=number: answers(f"d{number}"), 120, 0.1)
    many = live.model_server().memory_full_info().pss
    return {
        "one_mib": one >> 20,
        "many_mib": many >> 20,
        "deployments": deployments,
        "ratio": round(many / one, 3),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--switches", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--deployments", type=int, default=10)
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "home").mkdir()
        model = given.model
        if model is None:
            sys.path.insert(0, str(TESTS / "support"))
            from tiny_models import make_tiny_model

            model = make_tiny_model(root / "tiny")
        make_adapters(model, root / "adapters")
        with site(root / "home", model, root / "adapters") as live:
            figures = under_load(live, given.switches, given.clients)
            figures["memory"] = memory(live, given.deployments)
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    sys.exit(1 if figures["failed"] or figures["mixed"] else 0)


if __name__ == "__main__":
    main()
