"""A real server in a process of its own, with workers and a model server that are scripted; ready in seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "runner" / "server"
NO_MLFLOW = "http://127.0.0.1:9"  # the discard port: nobody answers


@dataclass(frozen=True)
class RealServer:
    url: str
    token: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes every command speak to it."""
        return {"ARENA_BASE_URL": self.url, "ARENA_API_KEY": self.token}


def token_of(server: RealServer, role: str) -> str:
    """A token of this server, made as its owner makes one."""
    command = [sys.executable, "-m", "arena_runner.cli", "token", "create", "--role", role, "--name", role]
    kept = {**os.environ, "ARENA_HOME": str(server.home)}
    return subprocess.run(command, env=kept, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def real_server(
    home: Path,
    *,
    mlflow_uri: str | None = NO_MLFLOW,
    variables: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[RealServer]:
    """Start one in `home`; it is gone at the end. Without an address of MLflow it has one of its own."""
    home.mkdir(parents=True, exist_ok=True)
    scripted = {
        "worker": {"command": [sys.executable, str(SCRIPTS / "scripted_worker.py")]},
        "model_server": {"command": [sys.executable, str(SCRIPTS / "scripted_model_server.py")]},
    }
    (home / "settings.yaml").write_text(json.dumps({**scripted, **settings}))
    command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(home)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARENA_")}
    kept |= {"ARENA_MODELS_DIR": str(home / "models"), **(variables or {})}
    command += [] if mlflow_uri is None else ["--mlflow-uri", mlflow_uri]
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=kept)
    try:
        note = _announced(process, home)
        yield RealServer(f"http://127.0.0.1:{note['port']}", note["token"], home)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _announced(process: subprocess.Popen[bytes], home: Path) -> dict[str, str]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, (home / "server.log").read_text()
        if (home / "server.json").exists():
            found: dict[str, str] = json.loads((home / "server.json").read_text())
            return found
        time.sleep(0.05)
    raise AssertionError((home / "server.log").read_text())
