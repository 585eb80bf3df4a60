"""A `vllm` OpenAI server as a process of its own, in an environment of its own.

vLLM pins torch and transformers more tightly than the trainer, so it is never imported here: `ARENA_VLLM_PYTHON`
names the interpreter that has it, else this one is asked. Adapters are loaded and unloaded while it runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from arena_gitops.errors import ArenaError
from arena_runner.engines import vllm_inside

PYTHON = "ARENA_VLLM_PYTHON"
BASE = "base"
"""the name under which the model without any adapter answers"""
START_S = 300.0
"""a large model on a slow disk; a server that dies earlier is noticed at once"""


class EngineError(ArenaError):
    """The engine cannot do what the run needs; says what it printed last."""


@dataclass(frozen=True, slots=True)
class VllmSpec:
    """What one engine process is started for."""

    model: Path
    dtype: str
    members: int
    max_rank: int
    longest: int
    """tokens of prompt and completion together"""
    rows_in_flight: int
    seed: int = 0
    cpu_cache_gib: int = 1
    inside: str = "vllm_inside"
    """the module on vLLM's path that has our `Reader` and `Guard`"""
    kept: int | None = None
    """adapters that may be loaded at a time, if more than are computed with at a time"""
    raw_logprobs: bool = False
    """told at temperature 1, as callers of a served model expect them"""

    def command(self, python: str, port: int) -> list[str]:
        """The rules of training.md §2: logprobs at the sampling temperature, none of the model's own defaults."""
        options = {
            "model": self.model,
            "served-model-name": BASE,
            "dtype": self.dtype,
            "max-model-len": self.longest,
            "max-num-seqs": self.rows_in_flight,
            "max-loras": self.members + 2,  # the adapter of zeros, and a new name beside the one it replaces
            "max-lora-rank": _rank_class(self.max_rank),
            "logprobs-mode": "raw_logprobs" if self.raw_logprobs else "processed_logprobs",
            "generation-config": "vllm",
            "worker-extension-cls": f"{self.inside}.Reader",
            "middleware": f"{self.inside}.Guard",
            "seed": self.seed,
            "host": "127.0.0.1",
            "port": port,
        }
        if self.kept is not None:
            options["max-cpu-loras"] = max(self.kept, self.members) + 2
        flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        module = "vllm.entrypoints.openai.api_server"
        return [python, "-m", module, *flags, "--enable-lora", "--enforce-eager", "--no-enable-log-requests"]


def _rank_class(rank: int) -> int:
    """The kernels exist for these ranks; a smaller adapter runs in the next larger."""
    known = (8, 16, 32, 64, 128, 256, 320, 512)
    fitting = next((size for size in known if size >= rank), None)
    if fitting is None:
        raise EngineError(f"lora_r {rank} is more than vLLM's largest, {known[-1]}; use the torch engine")
    return fitting


def find_python() -> str | None:
    """The interpreter that has vLLM; None where there is none."""
    if named := os.environ.get(PYTHON):
        return named
    return sys.executable if find_spec("vllm") else None


class VllmProcess:
    """Started by entering, ended by leaving; `restart` after a crash."""

    def __init__(self, spec: VllmSpec, python: str, folder: Path, *, own_session: bool = True) -> None:
        """Prepare; without a session of its own it goes down with the group of its parent."""
        self.spec = spec
        self._own_session = own_session
        self._python, self._folder = python, folder
        self._key = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self.http = httpx.Client()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self.restart()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log(self) -> Path:
        """Everything it printed."""
        return self._folder / "vllm.log"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def answers(self) -> bool:
        """Whether it says that it is well; one that is dying may run for a while and answer nobody."""
        try:
            return self.alive and self.http.get("/health", timeout=30.0).is_success
        except httpx.TransportError:
            return False

    def restart(self) -> None:
        """Start it, anew if need be; returns when it answers, raises EngineError when it cannot."""
        self._end()
        inside = self._folder / "inside"
        inside.mkdir(exist_ok=True)
        shutil.copy(vllm_inside.__file__, inside)  # alone: nothing else of ours is on vLLM's path
        port = _free_port()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.spec.command(self._python, port),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=self._own_session,
            )
        headers = {"Authorization": f"Bearer {self._key}"}
        # Loopback traffic and its key must never meet a proxy of the environment.
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=600.0, trust_env=False
        )
        self._wait()

    def close(self) -> None:
        """End the process and its children."""
        self._end()

    def names(self) -> dict[str, int]:
        """Which integer id a request for a name is answered by."""
        answer = self.http.get(vllm_inside.NAMES)
        answer.raise_for_status()
        return {str(name): int(number) for name, number in answer.json().items()}

    def read(self, number: int, rank: int) -> dict[str, str]:
        """Digest of every layer in the slot of an adapter; empty when it has none (`vllm_inside.Reader`)."""
        answer = self.http.post(
            "/collective_rpc", json={"method": "arena_read", "args": [{str(number): rank}]}
        )
        if not answer.is_success:
            raise EngineError(f"vLLM's worker cannot be read: {answer.status_code} {answer.text[:500]}")
        (worker,) = answer.json()["results"]
        return dict(worker.get(str(number), {}))

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "VLLM_"))}
        return kept | {
            "VLLM_API_KEY": self._key,  # by environment: a command line is read by everybody
            "VLLM_SERVER_DEV_MODE": "1",  # has the route by which workers are asked; every route needs the key
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(self._folder / "inside"), kept.get("PYTHONPATH")))
            ),
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_CPU_KVCACHE_SPACE": str(self.spec.cpu_cache_gib),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",  # the model is a folder
        }

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if not self.alive:
                raise EngineError(f"vLLM did not start; it printed last:\n{self.last_words()}")
            try:
                if self.http.get("/health", timeout=5.0).is_success:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.2)
        raise EngineError(f"vLLM did not answer within {START_S:.0f} s:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        with self.log.open(encoding="utf-8", errors="replace") as file:
            return "".join(deque(file, maxlen=12)).rstrip()

    def _end(self) -> None:
        self.http.close()
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                if self._own_session:
                    os.killpg(process.pid, number)
                else:
                    process.send_signal(number)
            except ProcessLookupError:
                break
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                continue
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
