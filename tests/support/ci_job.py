"""A GitHub runner for tests: the `run:` blocks of the example workflows under bash, with files and variables as GitHub's.

What GitHub would do is done here: event files, variables, tokens, merges. The server is a real one that trains nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from github_api import JOB_TOKEN, REPOSITORY, github_api
from real_server import real_server
from ruamel.yaml import YAML

__all__ = ["Done", "Repo", "connected", "github_api", "planned", "repo", "served", "tracked"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "infra-repo"
_NUMBERS = count(1)
IDLE_WORKER = [sys.executable, "-c", "import signal; signal.pause()"]
PULLED = "pulled"
"""A tier whose workers come by themselves: nobody, or a test."""
TIERS = f"""\
tiers:
  - {{id: local, num_cpus: 2, ram_gb: 8, credits_per_node_hour: 0}}
  - {{id: {PULLED}, executor: pull, gpu_type: A100, num_gpus: 1, num_cpus: 8, ram_gb: 64, credits_per_node_hour: 2.41}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A real server that trains nothing; tests share it, each under names of its own."""
    home = tmp_path_factory.mktemp("served") / "home"
    home.mkdir()
    (home / "tiers.yaml").write_text(TIERS)
    with real_server(home, worker={"command": IDLE_WORKER, "lease_s": 3600}) as server:
        yield server


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A real server with an MLflow of its own, whose runs complete by a script."""
    with real_server(tmp_path_factory.mktemp("tracked") / "home", mlflow_uri=None) as server:
        yield server


@dataclass
class Done:
    code: int
    out: str
    summary: str
    outputs: dict[str, str]


@dataclass
class Repo:
    """A clone, and a runner that does in it what a workflow says."""

    root: Path
    api: object
    scratch: Path
    base_url: str = ""
    secrets: dict[str, str] = field(default_factory=dict)
    cancel_at: str = ""
    """a job that prints this is cancelled"""
    cancelled: float = 0.0
    meanwhile: tuple[str, Callable[[], object]] | None = None
    """what happens elsewhere once a job has printed this"""
    name: str = "word-problems"
    """of the stack and of what is in it"""
    base: str = ""
    """the commit that pull requests start from"""

    def git(self, *args: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", *identity, *args], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def edit(self, path: str, old: str, new: str) -> None:
        """Put other text in the place of the first that matches; what the example says today is its own matter."""
        file = self.root / path
        text, count = re.subn(old, new, file.read_text(), count=1)
        assert count == 1
        file.write_text(text)

    def job(self, workflow: str, name: str, event: dict, *, token: str = JOB_TOKEN, **inputs: str) -> Done:
        """Run the steps of a workflow that call `arena ci` for this event; the last one's outcome."""
        steps = YAML(typ="safe").load(self.root / ".github" / "workflows" / workflow)["jobs"]
        ours = [s for job in steps.values() for s in job["steps"] if "arena ci" in s.get("run", "")]
        ours = [s for s in ours if "if" not in s or f"== '{name}'" in s["if"]]
        assert len(ours) == 1
        return self._step(ours[0], name, event, token, inputs)

    def _step(self, step: dict, name: str, event: dict, token: str, inputs: dict[str, str]) -> Done:
        files = {
            key: self.scratch / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH")
        }
        for file in files.values():
            file.write_text("")
        files["GITHUB_EVENT_PATH"].write_text(json.dumps(event))
        known = {"github.token": token, "vars.ARENA_BASE_URL": self.base_url}
        known |= {f"secrets.{key}": value for key, value in self.secrets.items()}
        known |= {f"inputs.{key}": value for key, value in inputs.items()}
        asked = {
            key: re.sub(r"\$\{\{ *(\S+) *\}\}", lambda found: known.get(found[1], ""), value)
            for key, value in step.get("env", {}).items()
        }
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ARENA_", "GITHUB_"))},
            **{key: str(path) for key, path in files.items()},
            **asked,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.scratch),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.api.url,
            "GITHUB_EVENT_NAME": name,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": "42",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_SHA": self.git("rev-parse", "HEAD"),
            "RUNNER_TEMP": str(self.scratch),
        }
        script = self.scratch / "step.sh"
        script.write_text(step["run"])
        code, told = self._bash(script, env)
        outputs = re.findall(
            r"^(\w+)<<(\w+)\n(.*?)\n\2$", files["GITHUB_OUTPUT"].read_text(), re.MULTILINE | re.DOTALL
        )
        return Done(
            code,
            told,
            files["GITHUB_STEP_SUMMARY"].read_text(),
            {key: value for key, _, value in outputs},
        )

    def _bash(self, script: Path, env: dict[str, str]) -> tuple[int, str]:
        """As a runner does; it also cancels as one does: a signal to the step's own process."""
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
        told: list[str] = []
        with subprocess.Popen(
            command, cwd=self.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout:
                told.append(line)
                if self.cancel_at and self.cancel_at in line:
                    self.cancelled = time.monotonic()
                    process.send_signal(signal.SIGTERM)
                if self.meanwhile is not None and self.meanwhile[0] in line:
                    self.meanwhile, happens = None, self.meanwhile[1]
                    happens()
        return process.returncode, "".join(told)

    def arena(self, *args: str) -> str:
        """What a command of somebody with the apply key says."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ARENA_", "GITHUB_"))}
        mine = {"ARENA_BASE_URL": self.base_url, "ARENA_API_KEY": self.secrets["ARENA_APPLY_KEY"]}
        command = [Path(sys.executable).parent / "arena-gitops", *args]
        env = {**kept, **mine, "HOME": str(self.scratch)}
        done = subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pull_event(self, number: int, *, source: str = REPOSITORY, **more: object) -> dict:
        """A push to a pull request; the API knows it too."""
        head = self.git("rev-parse", "HEAD")
        self.api.pull(number, head, of=f"{source.partition('/')[0]}:topic")
        side = {"sha": head, "ref": "topic", "repo": {"full_name": source}}
        base = {"sha": self.base, "ref": "main"}
        return {"pull_request": {"number": number, "head": side, "base": base, **more}}

    def connect(self, url: str, token: str) -> Repo:
        """Plan and apply at this server, under names of its own."""
        number = next(_NUMBERS)
        self.call_it(f"words-{number}", number)
        self.edit("arena.yaml", "https://arena.example.org", url)
        self.base_url = url
        self.secrets = dict.fromkeys(("ARENA_PLAN_KEY", "ARENA_PREVIEW_KEY", "ARENA_APPLY_KEY"), token)
        return self

    def call_it(self, name: str, seed: int) -> None:
        """Other names and another seed, so that nothing here is what another test has."""
        for file in self.root.rglob("*.yaml"):
            file.write_text(file.read_text().replace(self.name, name))
        self.edit("manifests/word_problems_grpo.yaml", r"\brand_seed: \d+", f"rand_seed: {seed}")
        self.name = name

    def squash(self, number: int, head: str) -> None:
        """Merge as one new commit, whose sha nobody has seen."""
        self.git("commit", "--quiet", "--amend", "-m", f"Merged #{number}")
        self.api.pull(number, head, merged_as=self.git("rev-parse", "HEAD"))


@pytest.fixture
def repo(tmp_path, github_api):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    root = tmp_path / "clone"
    shutil.copytree(EXAMPLE, root)
    made = Repo(root, github_api, scratch)
    made.git("init", "--quiet", "--initial-branch", "main")
    made.base = made.commit("What was there before")
    return made


@pytest.fixture
def connected(repo, served):
    return repo.connect(served.url, served.token)


def planned(repo: Repo, number: int) -> Done:
    return repo.job("arena-plan.yml", "pull_request", repo.pull_event(number))
