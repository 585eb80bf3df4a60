"""A server of its own for a benchmark: in a folder, without MLflow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = "http://127.0.0.1:9"
"""the discard port: an MLflow that never answers"""


@contextmanager
def running(home: Path, **environment: str) -> Iterator[tuple[str, dict[str, str], subprocess.Popen[bytes]]]:
    """Start it; its address, the headers of its admin, its process; stopped at the end."""
    process = started(home, **environment)
    try:
        note = announced(process, home)
        yield f"http://127.0.0.1:{note['port']}", {"Authorization": f"Bearer {note['token']}"}, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def started(home: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Its process; what it says is appended to `server.log`."""
    command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(home)]
    with (home / "server.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--mlflow-uri", NOBODY], stdout=log, stderr=log, env=os.environ | environment
        )


def announced(process: subprocess.Popen[bytes], home: Path) -> dict[str, Any]:
    """What a server that is ready says of itself; its own words if it ends before."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit((home / "server.log").read_text()[-4000:])
        note = home / "server.json"
        found: dict[str, Any] = json.loads(note.read_text()) if note.exists() else {}
        if found.get("pid") == process.pid:  # not that of one that was killed before
            return found
        time.sleep(0.02)
    raise SystemExit("the server does not become ready")
