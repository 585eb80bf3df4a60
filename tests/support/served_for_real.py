"""A real server whose scripted worker exports real adapters of a tiny model, and what one asks of its deployments."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from real_server import RealServer, real_server

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.wire import Owner, PutResource

OWNER = Owner(stack="team")


def until(condition: Callable[[], Any], seconds: float = 300.0, pause_s: float = 0.05) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause_s)
    return found


@dataclass
class Site:
    """The server, and a client of its admin."""

    server: RealServer
    http: httpx.Client
    etags: dict[str, str] = field(default_factory=dict)

    def put(self, kind: str, name: str, **spec: Any) -> None:
        """Apply one resource."""
        body = PutResource(owner=OWNER, spec=spec, fingerprint=fingerprint(spec, {}))
        headers = {"If-Match": self.etags[name]} if name in self.etags else {}
        path = f"/api/v1/resources/{kind}/{name}"
        answer = self.http.put(path, json=body.model_dump(mode="json"), headers=headers)
        assert answer.status_code == 200, answer.text
        self.etags[name] = answer.json()["etag"]

    def retire(self, name: str) -> None:
        """Take a deployment away."""
        params = OWNER.model_dump(mode="json")
        headers = {"If-Match": self.etags.pop(name)}
        answer = self.http.delete(f"/api/v1/resources/deployment/{name}", params=params, headers=headers)
        assert answer.status_code == 204, answer.text

    def status(self, name: str) -> dict[str, Any]:
        """How a deployment is."""
        state = self.http.get("/api/v1/state", params={"stack": OWNER.stack}).json()
        found = next(r for r in state["resources"] if (r["kind"], r["name"]) == ("deployment", name))
        status: dict[str, Any] = found["deployment"]
        return status

    def serves(self, name: str, checkpoint: str) -> None:
        """Wait until it does."""

        def there() -> bool:
            status = self.status(name)
            assert status["state"] not in {"held", "failed"}, status["message"]
            return (status["state"], status.get("checkpoint")) == ("serving", checkpoint)

        until(there)

    def ask(self, name: str, prompt: str = "2 and 2", tokens: int = 12) -> httpx.Response:
        """A greedy completion, for whoever looks at status and headers."""
        params = {"max_new_tokens": tokens, "temperature": 0}
        return self.http.post(f"/i/{name}/generate", json={"prompts": [prompt], "params": params})

    def chat(self, name: str, tokens: int = 12) -> httpx.Response:
        """A greedy chat completion."""
        asked = [{"role": "user", "content": "2 and 2"}]
        body = {"model": name, "messages": asked, "temperature": 0, "max_tokens": tokens}
        return self.http.post("/v1/chat/completions", json=body)

    def says(self, name: str) -> str:
        """Its words."""
        answer = self.chat(name)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text

    def shows(self, name: str, checkpoint: str, tier: str) -> str:
        """Deploy a member's checkpoint to a tier, wait until it serves: what it says."""
        self.put("deployment", name, experiment="trained", checkpoint=checkpoint, tier=tier)
        self.serves(name, checkpoint)
        return self.says(name)

    def back_after(self, name: str, kill: Callable[[], None]) -> None:
        """Kill something and ask until it answers again; everyone is told when to come back meanwhile."""
        kill()
        refused: list[httpx.Response] = []

        def answers() -> bool:
            answer = self.chat(name)
            if answer.status_code != 200:
                refused.append(answer)
            return answer.status_code == 200 and bool(refused)

        until(answers, pause_s=0.25)
        assert {answer.status_code for answer in refused} == {503}
        assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)


@contextmanager
def site(
    home: Path,
    adapters: Path,
    *,
    tiers: tuple[dict[str, Any], ...],
    variables: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """A server with one finished run `trained` of the model `tiny`, which must be in `home/models`.

    Its two members export `adapters/m0` and `adapters/m1`.
    """
    figures = {"num_cpus": 2, "ram_gb": 4.0, "credits_per_node_hour": 1.0}
    (home / "tiers.yaml").write_text(json.dumps({"tiers": [{**figures, **tier} for tier in tiers]}))
    serve = [sys.executable, "-m", "arena_runner.cli", "serve", "--dtype", "float32"]
    with real_server(home, variables=variables, model_server={"command": serve}) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as http:
            made = Site(server, http)
            script = {"members": 2, "adapters": str(adapters)}
            manifest = {"algorithm": {"name": "GRPO"}, "training": {"max_steps": 8}, "script": script}
            made.put("experiment", "trained", manifest=manifest, inputs={}, model={"id": "tiny"})
            yield made
