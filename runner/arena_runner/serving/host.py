"""`arena-runner serve --server URL`: a serving host, which runs the model servers that a server tells it to.

It asks the server, again and again, and says what it has; base models and adapters come through the server, by digest.
Its model servers listen on loopback behind one door (`gateway`), which is the address the server is told.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from arena_gitops import __version__
from arena_gitops.errors import UsageError
from arena_gitops.spec.worker import HostedModel, HostOrder, HostReport
from arena_runner.leaving import Leaving
from arena_runner.model_cache import models_folder
from arena_runner.server.executors.local import RUNNER
from arena_runner.server.home import Home
from arena_runner.server.model_servers import GIVE_UP_AFTER, START_S, TOKEN, VLLM_PYTHON
from arena_runner.server.supervised import Program, Supervised
from arena_runner.server_link import FencedError, RefusedError, ServerLink, UnreachableError
from arena_runner.serving.dialler import Dialler
from arena_runner.serving.gateway import Shelter, create_gateway
from arena_runner.serving.policy_protocol import POLICIES

LOOK_S = 0.5
"""how often to look after the model servers"""
AWAY_S = 600.0
"""how long a base model is waited for while the server is away"""

log = logging.getLogger("arena_runner.host")


@dataclass(frozen=True, slots=True)
class Post:
    """What this host is."""

    home: Home
    tier: str
    url: str | None
    """by which the server reaches it; None: it has to be asked over connections that it opens"""
    options: tuple[str, ...] = ()
    """for its model servers"""


class ServingHost:
    """Level-triggered like the server's controllers: every look compares what was ordered with what runs."""

    def __init__(self, link: ServerLink, post: Post) -> None:
        self._link, self._post = link, post
        name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-.") or "host"
        self.host_id = f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
        self._orders: dict[str, HostOrder] = {}
        self._running: dict[str, Supervised] = {}
        self._bases: dict[str, Future[Path | None]] = {}
        self._fetching = ThreadPoolExecutor(1, "base model")
        self._said: HostReport | None = None

    def find(self, token: str) -> str | None:
        """The model server that a token opens."""
        for process in list(self._running.values()):
            endpoint = process.endpoint
            if endpoint is not None and secrets.compare_digest(endpoint.token.encode(), token.encode()):
                return endpoint.url
        return None

    def look(self, *, report: bool) -> float | None:
        """Look after the model servers; tell the server if that is due or news. The wait until it is due again."""
        models = {key: self._keep(order) for key, order in self._orders.items()}
        for key in [key for key in self._running if key not in self._orders]:
            self._running.pop(key).stop(grace_s=10.0)
        said = self._report(models)
        if not report and said == self._said:
            return None
        orders = self._link.host(said)
        self._said = said
        self._orders = {order.key: order for order in orders.models}
        return orders.poll_s

    def close(self) -> None:
        """Say goodbye and end everything."""
        try:
            self._link.host(self._report({}, leaving=True))
        except (UnreachableError, RefusedError, FencedError) as problem:
            log.warning("the server did not hear that this host goes: %s", problem)
        self._fetching.shutdown(wait=False, cancel_futures=True)
        for process in self._running.values():
            process.stop(grace_s=10.0)

    def _report(self, models: dict[str, HostedModel], *, leaving: bool = False) -> HostReport:
        return HostReport(
            host_id=self.host_id,
            hostname=socket.gethostname(),
            tier=self._post.tier,
            version=__version__,
            url=self._post.url,
            models=models,
            leaving=leaving,
        )

    def _keep(self, order: HostOrder) -> HostedModel:
        """The next step of one model server."""
        if order.key not in self._running:
            base = self._bases.get(order.key)
            if base is None:
                base = self._bases[order.key] = self._fetching.submit(self._base, order)
            if not base.done():
                return HostedModel(state="starting")
            if (problem := base.exception()) is not None:
                del self._bases[order.key]  # tried again at the next look
                return HostedModel(state="broken", message=str(problem)[:4000])
            self._running[order.key] = Supervised(self._post.home, self._program(order, base.result()))
        process = self._running[order.key]
        endpoint = process.look()
        if endpoint is not None:
            return HostedModel(state="answering", token=endpoint.token)
        if process.failures > GIVE_UP_AFTER:
            return HostedModel(state="broken", message=process.last_words or "it prints nothing")
        return HostedModel(state="starting")

    def _base(self, order: HostOrder) -> Path | None:
        """The folder with the base model; None where the server has it not, and this machine or the hub may."""
        if order.model.id == POLICIES:
            return None
        return models_folder(self._link, order.model, self._post.home.root / "models-of-server", AWAY_S)

    def _program(self, order: HostOrder, folder: Path | None) -> Program:
        home = self._post.home
        model = order.model
        revision = ("--revision", model.revision) if model.revision else ()
        start: Sequence[str] = (*RUNNER, "serve", "--model", model.id, *revision, "--engine", order.engine)
        start = (*start, *self._post.options)
        if model.id == POLICIES:
            start = (*RUNNER, "serve-policies")

        def environment(token: str) -> dict[str, str]:
            folders = {"ARENA_HOME": str(home.root), "ARENA_MODELS_DIR": str(folder or home.models)}
            vllm = {VLLM_PYTHON: os.environ[VLLM_PYTHON]} if VLLM_PYTHON in os.environ else {}
            return {TOKEN: token, "PYTHONUNBUFFERED": "1", **folders, **vllm}

        name = "hosted-" + re.sub(r"[^A-Za-z0-9]+", "-", order.key)[:80].strip("-")
        return Program(
            name,
            lambda port, _: (*start, "--port", str(port)),
            environment,
            "/healthz",
            START_S[order.engine],
        )


def serve_for(link: ServerLink, post: Post, listener: socket.socket, leaving: Leaving) -> None:
    """Be a serving host until told to go."""
    host = ServingHost(link, post)
    door_at = listener.getsockname()[:2]
    app = create_gateway(host.find, Shelter(link, post.home.root / "adapters"))
    door = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=10, lifespan="off")
    )
    listener.listen()
    thread = threading.Thread(target=door.run, kwargs={"sockets": [listener]}, name="gateway", daemon=True)
    thread.start()
    dialler = Dialler(link.url, link.token, host.host_id, door_at) if post.url is None else None
    where = f"listens at {post.url}" if dialler is None else f"dials {link.url}"
    log.info("serving host %s of tier %s %s", host.host_id, post.tier, where)
    try:
        _until_told(host, leaving)
    finally:
        host.close()
        if dialler is not None:
            dialler.close()
        door.should_exit = True
        thread.join(15)


def _until_told(host: ServingHost, leaving: Leaving) -> None:
    left = 0.0
    while not leaving.asked.is_set():
        try:
            due = host.look(report=left <= 0)
            left = due if due is not None else left
        except (UnreachableError, FencedError) as problem:
            log.warning("the server does not answer: %s", problem)
            left = 2.0
        except RefusedError as problem:
            raise UsageError(f"the server refused this host: {problem}") from problem
        leaving.asked.wait(LOOK_S)
        left -= LOOK_S
