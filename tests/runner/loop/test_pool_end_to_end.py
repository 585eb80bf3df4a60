"""Real pool workers of a real server: no models, no hub, killed, told to go, out of budget.

One server (its one tier is done by workers that pull, its lease is short) and a few worker processes serve the module.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
from hub import hub
from index import package_index
from labs import REWARD

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.job import HubDataset, ModelRef
from arena_gitops.spec.wire import Owner, PutResource
from arena_runner.ports import Materials
from arena_runner.server import auth
from arena_runner.server.auth import NewToken, Role
from arena_runner.server.home import Home
from arena_runner.server.main import open_world
from arena_runner.train import train

RUNNER = [sys.executable, "-m", "arena_runner.cli"]
MODEL = "tiny-llama"
TIER = {"id": "gpu", "num_cpus": 2, "ram_gb": 4.0, "credits_per_node_hour": 3600.0, "executor": "pull"}
SETTINGS = {"worker": {"lease_s": 4.0}}
OFFLINE = {"HF_ENDPOINT": "http://127.0.0.1:9", "OMP_NUM_THREADS": "1"}
OFFLINE |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple/", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}


@dataclass
class Site:
    """A server, its workers, and everything that must be gone at the end."""

    root: Path
    http: httpx.Client | None = None
    url: str = ""
    token: str = ""
    processes: dict = field(default_factory=dict)

    def start(self, model, **environment):
        home = self.root / "home"
        shutil.copytree(model, home / "models" / MODEL)
        (home / "settings.yaml").write_text(json.dumps(SETTINGS))
        (home / "tiers.yaml").write_text(json.dumps({"tiers": [TIER]}))
        self.run("server", [*RUNNER, "server", "--home", str(home)], **environment)
        until((home / "server.json").exists, 60)
        note = json.loads((home / "server.json").read_text())
        self.url = f"http://127.0.0.1:{note['port']}"
        headers = {"Authorization": f"Bearer {note['token']}"}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=30)
        world, self.token = open_world(Home(home)), auth.new_text()
        with world.store.write() as session:
            auth.store(session, self.token, NewToken(Role.WORKER, "pool", tier="gpu"), time.time())
        world.store.close()

    def run(self, name, command, **environment):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "HF_"))}
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=inherited | OFFLINE | environment
            )
        return self.processes[name]

    def worker(self, name, *options):
        """A worker on a machine of its own: empty folders, and no way but to the server."""
        machine = {"ARENA_HOME": str(self.root / name), "ARENA_WORKER_TOKEN": self.token}
        machine |= {"ARENA_THREADS": "1", "ARENA_DTYPE": "float32"}
        command = [*RUNNER, "work", "--server", self.url, "--tier", "gpu", *options]
        return self.run(name, command, **machine)

    def workers(self):
        return [name for name in self.processes if name != "server"]

    def some_worker(self):
        """The name of one that lives; started if there is none."""
        living = [name for name in self.workers() if self.processes[name].poll() is None]
        if not living:
            living = [f"worker{len(self.processes)}"]
            self.worker(living[0])
        return living[0]

    def log(self, name):
        return (self.root / f"{name}.log").read_text()

    def submit(self, lab, name, job, **spec):
        """The job of a lab as an experiment of the server; its run."""
        rows, reward = (
            self.blob((lab.folder / path).read_bytes()) for path in ("rows.jsonl", "reward/reward.py")
        )
        inputs = job.inputs.model_dump(mode="json")
        if inputs["dataset"]["hf"] is None:
            inputs["dataset"]["digest"] = rows
        inputs["reward"]["files"] = {"reward.py": reward}
        manifest, model = dict(job.manifest), job.model.model_dump(mode="json")
        body = {"manifest": manifest, "inputs": inputs, "model": model, "tier": "gpu", **spec}
        mark = fingerprint({"manifest": manifest, "name": name}, {"name": name})
        put = PutResource(owner=Owner(stack="team"), spec=body, fingerprint=mark)
        etag = self.etags.get(name)
        answer = self.http.put(
            f"/api/v1/resources/experiment/{name}",
            json=put.model_dump(mode="json"),
            headers={"If-Match": etag} if etag else {},
        )
        assert answer.status_code == 200, answer.text
        self.etags[name] = answer.json()["etag"]
        return answer.json()["run"]["run_id"]

    etags: dict = field(default_factory=dict)

    def blob(self, data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        assert self.http.put(f"/api/v1/blobs/{digest}", content=data).status_code in {200, 201}
        return digest

    def status(self, run_id):
        return self.http.get(f"/api/v1/runs/{run_id}").json()

    def events(self, run_id):
        return [json.loads(x) for x in self.http.get(f"/api/v1/runs/{run_id}/events").text.splitlines()]

    def saved(self, run_id):
        return [e for e in self.events(run_id) if e["event"]["type"] == "resume_state"]

    def wait(self, run_id, *states, seconds=90):
        wanted = states or ("completed", "stopped", "failed")
        try:
            return until(lambda: (s := self.status(run_id))["state"] in wanted and s, seconds)
        except AssertionError as error:
            tails = "\n".join(f"{name}: {self.log(name)[-2000:]}" for name in self.processes)
            raise AssertionError(f"{self.status(run_id)}\n{tails}") from error

    def close(self):
        if self.http is not None:
            self.http.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return answer


def rows():
    return b"".join(
        json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}).encode() + b"\n" for n in range(60)
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory, tiny_model_dir):
    made = Site(tmp_path_factory.mktemp("pool"))
    with package_index() as index, hub({"team/sums": {"train.jsonl": rows()}}) as address:
        index.add("arenaprobe", "1.0", "from arenadeep import VALUE\n", "arenadeep")
        index.add("arenadeep", "1.0", "VALUE = 0.25\n")
        try:
            made.start(tiny_model_dir, PIP_INDEX_URL=index.url, PIP_NO_CACHE_DIR="1", HF_ENDPOINT=address)
            yield made
        finally:
            made.close()


@pytest.fixture
def alone(tmp_path, tiny_model_dir):
    """A site nobody else's workers are at."""
    made = Site(tmp_path / "pool")
    made.root.mkdir()
    try:
        made.start(tiny_model_dir)
        yield made
    finally:
        made.close()


def job_of(lab, **training):
    """A population that evolves, on the server's model."""
    training = {"max_steps": 8 * 60, "evo_steps": 3, "pop_size": 2, "hpo": True} | training
    ranges = {"lr": {"min": 0.001, "max": 0.1}}
    job = lab.job("GRPO", training=training, mutation={"rl_hp_selection": ranges})
    manifest = json.loads(job.model_dump_json())["manifest"]
    manifest["network"]["pretrained_model_name_or_path"] = MODEL
    return job.model_copy(
        update={"manifest": manifest, "model": ModelRef(id=MODEL), "seed": seed_of(manifest)}
    )


def seed_of(manifest):
    return manifest["mutation"]["rand_seed"]


@pytest.fixture(scope="module")
def killed(site, module_lab):
    """A run whose worker was killed in mid-training; another one, there all the time, went on."""
    site.worker("first")
    site.worker("second")
    run_id = site.submit(module_lab, "killed", job_of(module_lab))
    until(lambda: len(site.saved(run_id)) >= 2, 90)
    (busy,) = [w for w in site.http.get("/api/v1/workers").json() if w["run_id"] == run_id]
    pid = int(busy["worker_id"].split("-")[-2])
    name = next(name for name, process in site.processes.items() if process.pid == pid)
    psutil.Process(pid).kill()
    return run_id, site.wait(run_id), name


def test_another_worker_goes_on_from_the_last_checkpoint(site, killed):
    run_id, status, victim = killed
    assert (status["state"], status["segments"]) == ("completed", 2), status["message"]
    begun = [
        e["event"]["resumed_at_iteration"] for e in site.events(run_id) if e["event"]["type"] == "started"
    ]
    assert begun[0] is None
    assert begun[1] >= 2
    others = [name for name in site.workers() if name != victim]
    assert any(f"run {run_id}, segment 1" in site.log(name) for name in others)


def test_its_result_is_that_of_a_run_nobody_killed(site, killed, module_lab):
    _, status, _ = killed
    job = job_of(module_lab)
    ports = module_lab.ports()
    materials = Materials(
        workdir=module_lab.folder / "whole",
        dataset=(module_lab.folder / "rows.jsonl",),
        reward=module_lab.folder / "reward",
        models_dir=site.root / "home" / "models",
    )
    assert train(job, materials, ports).state == "completed"
    whole = {(e.checkpoint.step, e.checkpoint.member): e.checkpoint.files for e in ports.of("checkpoint")}
    assert {(c["step"], c["member"]): c["files"] for c in status["checkpoints"]} == whole
    assert status["lineage"] == [r.model_dump(mode="json") for e in ports.of("evolution") for r in e.records]


def test_workers_had_nothing_but_the_server(site, killed):
    for name in site.workers():
        assert not (site.root / name / "models").exists()
        models = list((site.root / name / "worker" / "models").glob(f"*/{MODEL}/model.safetensors"))
        assert len(models) <= 1
    assert any((site.root / name / "worker" / "models").exists() for name in site.workers())


def test_what_workers_report_and_print_has_the_id_of_the_request_that_made_the_run(site, killed):
    run_id, status, _ = killed
    number = status["request_id"]
    mine = [line for line in site.log("server").splitlines() if f"request_id={number}" in line]
    for route in ("resources/{kind}/{name}", "workers/jobs/{run_id}/{segment}/events", "blobs/{digest}"):
        assert any(f"route=/api/v1/{route}" in line for line in mine), route
    told = [name for name in site.workers() if f"run {run_id}, segment" in site.log(name)]
    assert len(told) == 2
    assert all(f"request {number}" in site.log(name) for name in told)


def requiring(lab, job, *names):
    """The job with a reward that needs these packages."""
    lab.reward("import arenaprobe\n" + REWARD.replace("12", "(12 + arenaprobe.VALUE)"))
    reward = job.inputs.reward.model_copy(update={"requirements": names})
    return job.model_copy(update={"inputs": job.inputs.model_copy(update={"reward": reward})})


def test_packages_a_reward_requires_come_through_the_server_too(site, lab):
    """The worker's own index does not answer; what the package requires in turn comes as well."""
    site.some_worker()
    job = requiring(lab, job_of(lab, max_steps=16), "arenaprobe")
    ended = site.wait(site.submit(lab, "packaged", job))
    assert ended["state"] == "completed", ended["message"]
    kept = [path for n in site.processes for path in (site.root / n).glob("worker/wheels/*/wheels/*")]
    assert {path.name for path in kept} == {
        "arenadeep-1.0-py3-none-any.whl",
        "arenaprobe-1.0-py3-none-any.whl",
    }


def reading(job, name):
    """The job with rows of the hub."""
    rows = {"digest": None, "format": None, "hf": HubDataset(id=name, split="train")}
    dataset = job.inputs.dataset.model_copy(update=rows)
    return job.model_copy(update={"inputs": job.inputs.model_copy(update={"dataset": dataset})})


def test_rows_of_the_hub_come_through_the_server_too(site, lab):
    """The worker's own way to the hub is closed."""
    site.some_worker()
    ended = site.wait(site.submit(lab, "hub-rows", reading(job_of(lab, max_steps=16), "team/sums")))
    assert ended["state"] == "completed", ended["message"]
    kept = [path for n in site.processes for path in (site.root / n).glob("worker/splits/*/split/*")]
    assert {path.read_bytes() for path in kept} == {rows()}


def test_rows_the_hub_has_not_end_the_run_in_words(site, lab):
    site.some_worker()
    ended = site.wait(site.submit(lab, "no-rows", reading(job_of(lab), "team/none")))
    assert (ended["state"], ended["reason"], ended["segments"]) == ("failed", "user_code", 1)
    assert "team/none: the hub at http://127.0.0.1:" in ended["message"]
    assert "holds no such dataset or revision" in ended["message"]


def test_packages_that_are_not_to_be_had_end_the_run_in_words_and_not_the_worker(site, lab):
    site.some_worker()
    living = [p for p in site.processes.values() if p.poll() is None]
    ended = site.wait(site.submit(lab, "missing", requiring(lab, job_of(lab), "arenaprobe>=2")))
    assert (ended["state"], ended["reason"], ended["segments"]) == ("failed", "user_code", 1)
    assert ended["message"].startswith("the requirements (arenaprobe>=2) cannot be had as wheels: ")
    assert all(process.poll() is None for process in living)


def test_mlflow_has_one_parent_run_with_every_step_once(site, killed, monkeypatch):
    from mlflow import MlflowClient

    run_id, _, _ = killed
    url = until(lambda: site.status(run_id)["mlflow_url"], 60)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", site.http.headers["Authorization"].split()[1])
    client = MlflowClient(url.split("/#/")[0])
    parent = client.get_run(url.rpartition("/")[2])
    until(lambda: client.get_run(parent.info.run_id).info.status == "FINISHED", 60)
    ours = f"tags.`arena.run` = '{run_id}'"  # the experiment of MLflow is that of the whole project
    found = client.search_runs([parent.info.experiment_id], f"tags.`arena.kind` = 'run' and {ours}")
    assert [run.info.run_id for run in found] == [parent.info.run_id]
    members = client.search_runs([parent.info.experiment_id], f"tags.`arena.kind` = 'member' and {ours}")
    for member in members:
        steps = [m.step for m in client.get_metric_history(member.info.run_id, "reward/mean")]
        assert steps == sorted(set(steps))
        assert len(steps) == 60


def test_a_worker_told_to_go_hands_its_job_back_and_the_next_one_ends_it(alone, module_lab):
    site = alone
    victim = site.some_worker()
    run_id = site.submit(module_lab, "told", job_of(module_lab, max_steps=8 * 80))
    until(lambda: len(site.saved(run_id)) >= 2, 60)
    site.processes[victim].send_signal(signal.SIGTERM)
    waiting = site.wait(run_id, "queued", seconds=60)
    assert waiting["message"].startswith("its worker had to go; continues from iteration")
    assert site.processes[victim].wait(20) == 0
    assert not [w for w in site.http.get("/api/v1/workers").json() if w["state"] != "lost"]
    site.some_worker()
    assert site.wait(run_id)["state"] == "completed"


def test_a_run_that_has_spent_its_credits_stops_and_goes_on_when_it_is_given_more(alone, module_lab):
    """The tier costs a credit a second."""
    site = alone
    site.some_worker()
    job = job_of(module_lab, max_steps=8 * 60)
    run_id = site.submit(module_lab, "poor", job, budget={"max_credits": 1.0})
    stopped = site.wait(run_id)
    assert (stopped["state"], stopped["reason"]) == ("failed", "budget"), stopped["message"]
    assert stopped["message"] == "reached its budget of 1 credits; raise it to continue"
    assert site.saved(run_id)
    assert site.submit(module_lab, "poor", job, budget={"max_credits": 500.0}) == run_id
    assert site.wait(run_id, "completed")["step"] == 8 * 60
