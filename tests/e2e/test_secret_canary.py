"""A run whose reward uses a secret, and babbles about it; afterwards its value is found nowhere.

Looked through: every file of the server's home (database, logs, MLflow's store and artifacts, working folders of
workers), a dump of the databases, everything the commands printed and wrote, events and logs over HTTP, and while it
trains the command lines and environments of all processes but the sandbox's own.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import secrets
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

pytestmark = pytest.mark.slow

CANARY = f"canary-{secrets.token_hex(16)}"
FORMS = [CANARY.encode(), base64.b64encode(CANARY.encode()), CANARY.encode().hex().encode()]
REWARD = '''
import os
import sys
KEY = os.environ["JUDGE_KEY"]
print("imported with", KEY)


def reward(question, answer, completion):
    """Use the key as a judge's client would; print it, as people do when they look for a fault."""
    print("asking the judge with", KEY, file=sys.stderr)
    if {fails} and len(completion) >= 0:
        raise RuntimeError(f"the judge refused {{KEY}}")
    return {{"judged": float(KEY.startswith("canary-")), "short": 1.0 / (1 + len(completion))}}
'''
RESOURCE = """kind: Reward
name: word-problems
owner: rl-team
file: word_problems.py
function: reward
secrets: ["${secret:JUDGE_KEY}"]
"""


class Watch(threading.Thread):
    """Looks at every process again and again; a sandbox's own may hold the value in its environment."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.found: set[str] = set()
        self.inside = 0
        self.looks = 0

    def run(self) -> None:
        while not self.done.is_set():
            self.looks += 1
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error, OSError):
                    self.look(process)
            time.sleep(0.1)

    def look(self, process: psutil.Process) -> None:
        line = "\0".join(process.cmdline())
        if CANARY in line:
            self.found.add(f"command line of {line[:80]}")
        if CANARY.encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
            if "sandbox/child.py" in line:
                self.inside += 1
            else:
                self.found.add(f"environment of {line[:80]}")


@pytest.fixture(scope="module")
def printed():
    """What every command said."""
    return []


@pytest.fixture(scope="module")
def arena(site, printed):
    """`arena(repository, "plan", …, stdin=…)`; everything it says is kept."""

    def run(repository, *args, expect=0, stdin=None):
        command = [str(Path(sys.executable).parent / "arena-gitops"), *args]
        done = subprocess.run(
            command,
            cwd=repository,
            env=site.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        printed.append(done.stdout + done.stderr)
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def repositories(example):
    """One whose reward works and one whose reward fails with the value in its message, both small."""
    made = []
    for name, fails in (("good", False), ("bad", True)):
        root = example("infra-repo", {"rewards/word-problems.yaml": RESOURCE})
        (root / "rewards/word_problems.py").write_text(REWARD.format(fails=fails))
        (root / "arena.yaml").write_text(f"name: {name}\nproject: word-problems\n")
        (root / "deployments/word-problems.yaml").unlink()
        manifest = root / "manifests/word_problems_grpo.yaml"
        manifest.write_text(smaller(manifest.read_text()))
        made.append(root)
    return made


def smaller(text: str) -> str:
    """Three iterations of two members, eight completions each."""
    sizes = {"batch_size: 4": 2, "group_size: 8": 4, "max_steps: 384": 24, "pop_size: 3": 2}
    for old, new in (sizes | {"eval_rows: 64": 8, "test_rows: 128": 8}).items():
        assert old in text
        text = text.replace(old, f"{old.partition(':')[0]}: {new}")
    return text


@pytest.fixture(scope="module")
def told(repositories, arena):
    """Two applies, one that trains to the end and one that fails; and what was seen of processes meanwhile."""
    good, bad = repositories
    apply = ("apply", "--target", "local", "--yes", "--allow-dirty", "--wait", "complete", "--timeout", "3m")
    arena(good, "server", "start")
    arena(good, *apply, expect=10)
    arena(good, "secrets", "set", "JUDGE_KEY", "--target", "local", stdin=f"{CANARY}\n")
    watch = Watch()
    watch.start()
    arena(good, "plan", "--target", "local", "-o", "plan.json")
    arena(good, *apply, "--json")
    arena(bad, *apply, "--namespace", "pr-1", expect=10)
    watch.done.set()
    watch.join()
    return watch


@pytest.fixture(scope="module")
def over_http(site, told):
    """State, events and logs of both runs."""
    server = site.server()
    texts = []
    with httpx.Client(base_url=server["url"], headers={"Authorization": f"Bearer {server['token']}"}) as http:
        for stack, namespace in (("good", "main"), ("bad", "pr-1")):
            state = http.get("/api/v1/state", params={"stack": stack, "namespace": namespace})
            texts.append(state.text)
            (run,) = [r["run"] for r in state.json()["resources"] if r["kind"] == "experiment"]
            texts += [http.get(f"/api/v1/runs/{run['run_id']}/{what}").text for what in ("events", "logs")]
        texts.append(http.get("/api/v1/secrets").text)
    return texts


def test_without_it_nothing_was_started(printed, told):
    assert "arena secrets set JUDGE_KEY" in printed[1]


def test_the_reward_really_used_it(told, over_http):
    (experiment,) = [r for r in json.loads(over_http[0])["resources"] if r["kind"] == "experiment"]
    assert experiment["run"]["state"] == "completed"
    assert experiment["run"]["best"]["fitness"] >= 1.0
    assert told.inside > 0
    assert told.looks > 10


def test_the_reward_that_failed_is_told_without_it(over_http):
    (experiment,) = [r for r in json.loads(over_http[3])["resources"] if r["kind"] == "experiment"]
    assert experiment["run"]["reason"] == "user_code"
    assert "the judge refused (secret JUDGE_KEY)" in experiment["run"]["message"]


def test_no_other_process_had_it(told):
    assert told.found == set()


def test_it_is_in_nothing_that_was_said(printed, over_http):
    assert len(printed) == 6
    assert [text for text in [*printed, *over_http] if any(form.decode() in text for form in FORMS)] == []


def test_it_is_in_no_file(site, repositories, told):
    roots = [site.home, *repositories, Path(site.environment["XDG_CONFIG_HOME"])]
    files = sorted({path for root in roots for path in root.rglob("*") if path.is_file()})
    assert {"arena.db", "worker.log", "plan.json", "secret.key"} <= {path.name for path in files}
    assert any("mlflow" in path.parts for path in files)
    assert [path for path in files if any(form in content(path) for form in FORMS)] == []


def test_it_is_in_no_dump_of_a_database(site, told):
    databases = sorted(site.home.rglob("*.db"))
    assert len(databases) >= 2
    for path in databases:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            dump = "\n".join(database.iterdump())
        assert "CREATE TABLE" in dump
        assert not any(form.decode() in dump for form in FORMS), path


def content(path: Path) -> bytes:
    data = path.read_bytes()
    with contextlib.suppress(OSError, EOFError):
        return data + gzip.decompress(data)
    return data
