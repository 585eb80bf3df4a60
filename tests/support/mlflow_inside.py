"""The way to a home's own MLflow that only its owner has: past the login, as the server goes."""

import json
from pathlib import Path

from arena_runner.server.home import Home
from arena_runner.server.keys import keys_of
from arena_runner.server.mlflow_process import secret_path


def mlflow_inside(home: Path) -> str:
    """The tracking URI."""
    port = json.loads((home / "processes" / "mlflow.json").read_text())["port"]
    return f"http://127.0.0.1:{port}{secret_path(keys_of(Home(home)))}"
