"""One real server per module, a tiny model in place of the big one, and the command line as users run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow_inside import mlflow_inside
from tiny_models import make_tiny_model

from arena_gitops.platforms.local import Home, stop_local

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ARENA = Path(sys.executable).parent / "arena-gitops"
SETTINGS = "models: {map: {smollm2-135m-instruct: tiny-llama}}\n"


@dataclass(frozen=True)
class Site:
    """A user's machine: the folder of the embedded server and the environment commands run in."""

    home: Path
    environment: dict[str, str]

    def run(self, repository: Path, *args: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Run one `arena` command in a repository; the exit code must be the expected one."""
        done = subprocess.run(
            [ARENA, *args],
            cwd=repository,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def state(self, repository: Path) -> dict[str, dict]:
        """`arena status --json`, by address."""
        found = json.loads(self.run(repository, "status", "--target", "local", "--json").stdout)
        return {f"{r['kind']}/{r['name']}": r for r in found["resources"]}

    def server(self) -> dict[str, str]:
        """`server.json`: url and token of the running server."""
        found = json.loads((self.home / "server.json").read_text())
        return {"url": f"http://127.0.0.1:{found['port']}", "token": found["token"]}

    def worker(self, run_id: str) -> psutil.Process | None:
        """The worker process of a run."""
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "work" in line and run_id in line:
                return process
        return None


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """An embedded server's folder whose big model is a tiny one; whatever was started is stopped at the end."""
    root = tmp_path_factory.mktemp("site")
    make_tiny_model(root / "models" / "tiny-llama")
    home = root / "home"
    home.mkdir()
    (home / "settings.yaml").write_text(SETTINGS)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ARENA_") and k != "CI"}
    yield Site(
        home,
        inherited
        | {
            "ARENA_HOME": str(home),
            "ARENA_MODELS_DIR": str(root / "models"),
            "XDG_CONFIG_HOME": str(root),
            "OMP_NUM_THREADS": "1",
        },
    )
    stop_local(Home(home))


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Copy an example, edit it, commit it: `example("infra-repo", {"rewards/x.py": "…"})`."""

    def copy(name: str, files: dict[str, str] | None = None) -> Path:
        root = tmp_path_factory.mktemp("repository") / name
        shutil.copytree(EXAMPLES / name, root)
        for path, text in (files or {}).items():
            (root / path).write_text(text)
        git(root, "init", "--quiet", "--initial-branch", "main")
        commit(root)
        return root

    return copy


def git(root: Path, *args: str) -> None:
    """Run git as somebody."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", root, *identity, *args], check=True, capture_output=True)


def commit(root: Path) -> None:
    """Commit everything."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "All of it")


@pytest.fixture(scope="session")
def commit_all():
    """`commit`, for tests that edit."""
    return commit


@pytest.fixture(scope="session")
def until():
    """Wait for a condition: `until(lambda: …, seconds=60)` returns its first true value."""

    def wait(condition: Callable[[], object], *, seconds: float = 90.0) -> object:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.3)
        raise AssertionError(f"not true within {seconds} s")

    return wait


@dataclass(frozen=True)
class Mlflow:
    """What a person would read in MLflow, through its public client."""

    client: object

    def get_run(self, run_id: str):
        return self.client.get_run(run_id)

    def children(self, parent) -> list:
        """Member runs, by name."""
        found = self.client.search_runs(
            [parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
        )
        return sorted(found, key=lambda run: run.data.tags["mlflow.runName"])

    def versions(self, run: dict) -> list:
        """Registered model versions of a run, oldest first, with their aliases."""
        found = self.client.search_model_versions(f"name = '{run['experiment']}'")
        whole = [self.client.get_model_version(v.name, v.version) for v in found]
        return sorted(whole, key=lambda version: int(version.version))


@pytest.fixture(scope="module")
def mlflow(state, site):
    """The MLflow that the server of this module started."""
    from mlflow.tracking import MlflowClient

    return Mlflow(MlflowClient(mlflow_inside(site.home)))
