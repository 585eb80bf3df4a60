"""The model servers of this machine: one process per base model, and what the deployments controller says to them.

Speaks `arena_runner.serving.protocol`. A refusal of the model server is a `RolloutError`; no answer is None or
False, to be asked again.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from arena_gitops.errors import ArenaError
from arena_runner.server.executors.local import RUNNER
from arena_runner.server.places import Place
from arena_runner.server.supervised import Program, Supervised
from arena_runner.server.world import ModelServer, World
from arena_runner.serving.policy_protocol import POLICIES

TOKEN = "ARENA_MODEL_SERVER_TOKEN"  # noqa: S105 - a variable's name
VLLM_PYTHON = "ARENA_VLLM_PYTHON"
START_S = {"torch": 180.0, "vllm": 600.0}
"""What a start may take: vLLM measures memory and warms its kernels up first."""
GIVE_UP_AFTER = 2
"""Failed starts in a row before the last: then a model server is said to be broken."""
CERTIFICATES = ssl.create_default_context()
"""Read once: reading them takes longer than most questions here."""


class RolloutError(ArenaError):
    """This revision cannot serve; the message says why."""


class AwayError(httpx.TransportError):
    """Nobody is there to do it now: as good as no answer, and says nothing about the revision."""


class Fleet:
    """Every model server that is wanted, by base model id."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._processes: dict[str, Supervised] = {}

    def keep(self, places: Mapping[str, Place]) -> None:
        """Start what is wanted, stop what is not, and tell the routes which of them answer."""
        answering = self._world.links.model_servers
        self._world.links.wanted_models = frozenset(places)
        self._elsewhere(places)
        wanted = {key: place for key, place in places.items() if place.tier is None}
        for model in [known for known in self._processes if known not in wanted]:
            answering.pop(model, None)
            self._processes.pop(model).stop(grace_s=10.0)
        self._bury_leftovers(wanted)
        for model, place in wanted.items():
            process = self._processes.setdefault(model, Supervised(self._world.home, self._program(place)))
            endpoint = process.look()
            self._world.links.starts[model] = process.starts
            if endpoint is None:
                answering.pop(model, None)
            else:
                answering[model] = ModelServer(endpoint.url, endpoint.token)

    def _elsewhere(self, places: Mapping[str, Place]) -> None:
        """What the hosts of other machines should run, and which of it answers."""
        answering, hosts = self._world.links.model_servers, self._world.links.hosts
        hosts.want(places.values(), self._world.clock())
        for key in [known for known in answering if known not in places and known not in self._processes]:
            del answering[key]
        for key in [key for key, place in places.items() if place.tier is not None]:
            url, model = hosts.find(key) or ("", None)
            if model is not None and model.state == "answering" and model.token:
                answering[key] = ModelServer(url, model.token)
            else:
                answering.pop(key, None)

    def _bury_leftovers(self, wanted: Mapping[str, Place]) -> None:
        """Stop what a predecessor that was killed has left behind and nobody wants any more."""
        known = {_name(model) for model in (*wanted, *self._processes)}
        for record in self._world.home.processes.glob("model-*.json"):
            if record.stem not in known:
                left = Program(record.stem, lambda _port, _token: (), lambda _token: {}, "/healthz")
                Supervised(self._world.home, left).stop(grace_s=10.0)
                record.unlink(missing_ok=True)

    def line(self, model: str) -> AdapterLine | None:
        """A line to the model server of this base model; None while it does not answer."""
        server = self._world.links.model_servers.get(model)
        return AdapterLine(server) if server else None

    def broken(self, model: str) -> str | None:
        """Why its model server does not come up, once it has failed often enough."""
        _, there = self._world.links.hosts.find(model) or ("", None)
        if there is not None and there.state == "broken":
            return there.message or "its host does not say why"
        process = self._processes.get(model)
        if process is None or process.failures <= GIVE_UP_AFTER:
            return None
        return process.last_words or "it prints nothing"

    def close(self) -> None:
        """Stop all."""
        self.keep({})

    def _policies(self) -> Program:
        """The one process of all policies: they are small, and share nothing but it."""

        def environment(token: str) -> dict[str, str]:
            return {TOKEN: token, "PYTHONUNBUFFERED": "1", "ARENA_HOME": str(self._world.home.root)}

        start = (*RUNNER, "serve-policies")
        return Program(
            _name(POLICIES), lambda port, _token: (*start, "--port", str(port)), environment, "/healthz"
        )

    def _program(self, place: Place) -> Program:
        world, ref = self._world, place.model
        settings = world.settings.model_server
        start = settings.command or (*RUNNER, "serve")
        if ref.id == POLICIES:
            return self._policies()

        def command(port: int, _token: str) -> Sequence[str]:
            revision = ("--revision", ref.revision) if ref.revision else ()
            engine = () if place.engine == "torch" else ("--engine", place.engine)
            return (*start, "--model", ref.id, *revision, "--port", str(port), *engine)

        def environment(token: str) -> dict[str, str]:
            folders = {"ARENA_HOME": str(world.home.root), "ARENA_MODELS_DIR": str(world.home.models)}
            vllm = {VLLM_PYTHON: os.environ[VLLM_PYTHON]} if VLLM_PYTHON in os.environ else {}
            return {TOKEN: token, "PYTHONUNBUFFERED": "1", **folders, **vllm}

        return Program(_name(place.key), command, environment, "/healthz", START_S[place.engine])


def _name(model: str) -> str:
    return "model-" + hashlib.sha256(model.encode()).hexdigest()[:12]


class AdapterLine:
    """What the controller asks of one model server."""

    def __init__(self, server: ModelServer, timeout_s: float = 120.0) -> None:
        self.server = server
        headers = {"Authorization": f"Bearer {server.token}"}
        self._http = httpx.Client(
            base_url=server.url, headers=headers, timeout=timeout_s, trust_env=False, verify=CERTIFICATES
        )

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def base_digest(self) -> str:
        """Of the base model's weights."""
        return str(self._json("GET", "/healthz")["model_digest"])

    def loaded(self) -> frozenset[str]:
        """Names of the adapters there."""
        return frozenset(str(adapter["name"]) for adapter in self._json("GET", "/adapters"))

    def load(self, name: str, files: Mapping[str, tuple[Path, str]], template: Any) -> None:
        """Load an adapter; the same again is no error."""
        places = {file: {"path": str(path), "digest": digest} for file, (path, digest) in files.items()}
        self._json("POST", "/adapters", {"name": name, "files": places, "template": template})

    def load_policy(self, name: str, files: Mapping[str, tuple[Path, str]]) -> None:
        """Load a policy; the same again is no error."""
        places = {file: {"path": str(path), "digest": digest} for file, (path, digest) in files.items()}
        self._json("POST", "/adapters", {"name": name, "files": places})

    def act_once(self, name: str) -> None:
        """One real action; a policy that gives none is refused."""
        self._json("POST", "/probe", {"adapter": name})

    def unload(self, name: str) -> None:
        """Let an adapter go; what is being generated on it ends first."""
        answer = self._http.delete(f"/adapters/{name}")
        if answer.status_code not in {204, 404}:
            raise _refusal(answer)

    def generate(self, name: str, prompt: str) -> int:
        """One real generation; gives the number of tokens."""
        params = {"max_new_tokens": 8, "temperature": 0, "do_sample": False}
        body = {"adapter": name, "prompts": [prompt], "params": params}
        results = self._json("POST", "/generate", body)["results"]
        return int(results[0]["finish"]["completion_tokens"])

    def logprobs(self, name: str, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """What the loaded weights think of given tokens."""
        body = {"adapter": name, "prompt_ids": list(prompt_ids), "token_ids": list(token_ids)}
        return [float(value) for value in self._json("POST", "/logprobs", body)["logprobs"]]

    def prove(
        self, name: str, digest: str | None, *, again: bool = False, prompt: str | None = None
    ) -> dict[str, Any]:
        """Have the policy-identity proof made (`arena_runner.serving.proof`); a refusal of it is a RolloutError.

        `again`: what this process has shown before needs its digest half only. `prompt`: one token is generated, too.
        """
        asked = {"adapter": name, "digest": digest, "again": again, "prompt": prompt}
        proved: dict[str, Any] = self._json("POST", "/prove", asked)
        return proved

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        if not answer.is_success:
            raise _refusal(answer)
        return answer.json()


def _refusal(answer: httpx.Response) -> RolloutError | AwayError:
    if answer.status_code in {401, 503}:  # of a process that ends, or of the one before it
        return AwayError(f"it answered {answer.status_code}: {answer.text[:300]}")
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = answer.text[:300]
    return RolloutError(f"the model server answered {answer.status_code}: {message}")
