"""The published clients, unmodified, each in an environment of its own, against a server that trains for real."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from hub import hub, parquet
from tiny_models import make_tiny_model

CLIENTS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "arena-gitops" / "clients"
SETTINGS = {"limits": {"max_steps": 48}, "models": {"map": {"Qwen/Qwen2.5-0.5B-Instruct": "tiny-llama"}}}
NO_MLFLOW = "http://127.0.0.1:9"  # the discard port: nobody answers


SEVERAL = """
import json, os, sys, tempfile, traceback
from agilerl.arena.cli import main
done = []
for arguments in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["arena", *arguments]
            code = 0
            try:
                sys.exit(main())
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [file.seek(0) or file.read().decode() for file in (out, err)]
        done.append([code, *texts])
print(json.dumps(done))
"""
"""Runs commands of the client one after the other, each in a fork of its own: its import takes longer than they do."""


@dataclass(frozen=True)
class Ran:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Everything it printed, on one line: the client wraps as it likes."""
        return " ".join((self.out + self.err).split())


@dataclass(frozen=True)
class Client:
    """One version of the published client, at one server, in a home of its own."""

    python: Path
    folder: Path
    environment: dict[str, str] = field(repr=False)
    version: str = ""
    """empty for our own"""

    def arena(self, *args: str, expect: int | None = 0, **environment: str) -> Ran:
        """Run the client's own `arena`."""
        return self._run([str(self.python.parent / "arena"), *args], expect, environment)

    def several(self, *commands: tuple[str, ...], expect: int | None = 0) -> list[Ran]:
        """Run several commands of the client's own `arena`."""
        done = json.loads(self.sdk(SEVERAL, json.dumps(commands)).out)
        ran = [Ran(*one) for one in done]
        for command, one in zip(commands, ran, strict=True):
            assert expect in {None, one.code}, f"{command}: exit {one.code}\n{one.out}\n{one.err}"
        return ran

    def sh(self, script: str) -> Ran:
        """Run a command as the tutorial prints it."""
        return self._run(["bash", "-c", script], 0, {})

    def sdk(self, script: str, *args: str) -> Ran:
        """Run Python with the client's package."""
        return self._run([str(self.python), "-c", script, *args], 0, {})

    def _run(self, command: list[str], expect: int | None, more: dict[str, str]) -> Ran:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert expect in {None, done.returncode}, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Ran(done.returncode, done.stdout, done.stderr)


@dataclass
class Site:
    """A server process with workers that really train, and what its owner knows."""

    home: Path
    environment: dict[str, str]
    process: subprocess.Popen | None = None
    url: str = ""
    token: str = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(self.home)]
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--mlflow-uri", NO_MLFLOW], env=self.environment, stdout=log, stderr=log
            )
        note = self.until(self._announced, seconds=60)
        self.url, self.token = f"http://127.0.0.1:{note['port']}", note["token"]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def get(self, path: str, **params):
        answer = httpx.get(
            self.url + path, params=params, headers={"Authorization": f"Bearer {self.token}"}, timeout=20
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def experiment(self, name: str) -> dict:
        return next(e for e in self.get("/api/cli/v1/experiments/list") if e["name"] == name)

    def wait(self, name: str, *states: str, seconds: float = 240.0) -> dict:
        """The experiment, once its run is in one of the states; an end of another kind fails at once."""

        def there():
            row = self.experiment(name)
            ended = row["status"] in {"completed", "failed", "stopped"}
            assert row["status"] in states or not ended, f"{row}\n{self.worker_log(row)}"
            return row if row["status"] in states else None

        return self.until(there, seconds=seconds)

    def until(self, condition, *, seconds: float):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.2)
        raise AssertionError(f"not true within {seconds} s\n{(self.home / 'server.log').read_text()[-3000:]}")

    def worker_log(self, row: dict) -> str:
        log = self.home / "runs" / row["run_id"] / "logs" / "worker.log"
        return log.read_text()[-3000:] if log.exists() else ""

    def _announced(self) -> dict | None:
        assert self.process.poll() is None, (self.home / "server.log").read_text()
        path = self.home / "server.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture(scope="session")
def question_rows(request) -> list[dict[str, str]]:
    """Rows shaped as GSM8K's: the real first ones where the shared data is, else sums."""
    root = Path(os.environ.get("ARENA_SHARED", request.config.rootpath.parent / "shared"))
    real = root / "data" / "gsm8k" / "train.jsonl"
    if real.is_file():
        rows = [json.loads(line) for line in real.read_text().splitlines()]
        short = [{k: row[k] for k in ("question", "answer")} for row in rows if len(row["question"]) < 130]
        return short[:320]
    sums = [(a, b) for a in range(3, 21) for b in range(2, 20)][:320]
    return [
        {"question": f"What is {a} + {b}?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"} for a, b in sums
    ]


@pytest.fixture(scope="session")
def hub_url(question_rows):
    """Address of a hub that holds openai/gsm8k."""
    files = {
        "README.md": b"# GSM8K",
        "main/train-00000-of-00001.parquet": parquet(question_rows),
        "main/test-00000-of-00001.parquet": parquet(question_rows[:8]),
        "socratic/train-00000-of-00001.parquet": parquet(question_rows[:8]),
    }
    with hub({"openai/gsm8k": files}) as url:
        yield url


@pytest.fixture(scope="module")
def site(tmp_path_factory, hub_url):
    """A fresh server on which the tutorial's model is a tiny one and 48 steps are enough."""
    root = tmp_path_factory.mktemp("arena-api")
    make_tiny_model(
        root / "models" / "tiny-llama", num_hidden_layers=1, hidden_size=16, num_attention_heads=2
    )
    home = root / "home"
    home.mkdir()
    (home / "settings.yaml").write_text(json.dumps({**SETTINGS, "hub": {"endpoint": hub_url}}))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "HF_"))}
    more = {"ARENA_MODELS_DIR": str(root / "models"), "OMP_NUM_THREADS": "1"}
    site = Site(home, kept | more | {"HF_HOME": str(root / "hf")})
    site.start()
    yield site
    site.stop()


def _installed(version: str) -> Path:
    """The interpreter of a published client's environment, made on first use and kept."""
    folder = CLIENTS / version
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            install = [folder / "bin" / "pip", "install", "--quiet", f"agilerl-arena=={version}"]
            subprocess.run(install, check=True)
            (folder / "complete").touch()
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def python_of():
    """`python_of("0.9.0")`: an interpreter that has the published client of this version."""
    return _installed


@pytest.fixture(scope="session")
def client_class() -> type[Client]:
    """For a client that nobody published."""
    return Client


@pytest.fixture(scope="module")
def client_of(site, python_of, tmp_path_factory):
    """`client_of("0.9.0")`: that client with a fresh home, logged in at the server by its token."""

    def make(version: str) -> Client:
        folder = tmp_path_factory.mktemp(f"client-{version}")
        python = python_of(version)
        environment = {
            "HOME": str(folder),
            "PATH": f"{python.parent}:/usr/bin:/bin",
            "ARENA_BASE_URL": site.url,
            "ARENA_API_KEY": site.token,
            "NO_PROXY": "127.0.0.1,localhost",
            "COLUMNS": "200",
        }
        return Client(python, folder, environment, version)

    return make


@dataclass(frozen=True)
class Tutorial:
    """The files of the published tutorial."""

    manifest: str
    reward: str

    def write(self, folder: Path) -> None:
        (folder / "gsm8k_grpo.yaml").write_text(self.manifest)
        (folder / "reward.py").write_text(self.reward)


@pytest.fixture(scope="session")
def tutorial() -> Tutorial:
    """Its manifest and its reward, as published (agilerl-arena is Apache-2.0), byte for byte in `tutorial/`."""
    folder = Path(__file__).parent / "tutorial"
    return Tutorial((folder / "gsm8k_grpo.yaml").read_text(), (folder / "reward.txt").read_text())


@pytest.fixture(scope="session")
def published(shared) -> str:
    """The tutorial's page."""
    return (shared / "reference" / "published" / "arena-tutorial-grpo-gsm8k.txt").read_text()
