"""What rewards require, through the server: who may ask for what, and whose fault it is when it is not to be had."""

import sys
from dataclasses import replace

import pytest
from index import package_index
from pool import Pool, code, digest_of, pull_tier
from starlette.testclient import TestClient

from arena_gitops.spec.job import JobInputs
from arena_runner.server.app import create_app
from arena_runner.server.services import wheel_files
from arena_runner.server.settings import TierFile
from arena_runner.wheel_cache import this_interpreter

pytestmark = pytest.mark.one_database

MINE = this_interpreter().model_dump()
OTHER = {"python": "3.12", "implementation": "cp", "platform": ["manylinux_2_17_aarch64"]}


@pytest.fixture
def index(monkeypatch):
    """The server's package index; its answers come at once, or not at all."""
    with package_index() as made:
        made.add("arenaprobe", "1.0", "VALUE = 0.25\n", "arenadeep>=1")
        made.add("arenadeep", "1.5", "DEEP = 1\n")
        for name, value in (
            ("INDEX_URL", made.url),
            ("RETRIES", "0"),
            ("NO_CACHE_DIR", "1"),
            ("CONFIG_FILE", "/dev/null"),
        ):
            monkeypatch.setenv(f"PIP_{name}", value)
        yield made


@pytest.fixture
def pool(world):
    made = replace(world, tiers=TierFile(tiers=(pull_tier(),)))
    with TestClient(create_app(made)) as http:
        yield Pool(made, http)
    made.resolvers.close()


@pytest.fixture
def claimed(pool, build):
    """A worker with a job whose reward requires these."""

    def make(*requirements, name="exp"):
        body = build.experiment(seed=len(name))
        inputs = JobInputs.model_validate(body.spec["inputs"]).model_dump(mode="json")
        inputs["reward"] = (inputs["reward"] or reward()) | {"requirements": list(requirements)}
        pool.submit(body, name, inputs=inputs)
        worker = pool.worker(f"w-{name}")
        assert worker.take()["experiment"] == name
        return worker

    def reward():
        source = pool.world.blobs.put(b"def reward(question, answer, completion):\n    return 1.0\n")
        return {"address": "reward/r", "files": {"r.py": source}, "entry": "r.py"}

    return make


def ask(worker, path="", target=None):
    return worker.ask("GET", f"/api/v1/wheels/{path}", worker.claim["token"], params=target or MINE)


def answered(worker, build, target=None):
    """The answer once the resolver has ended."""
    return build.until(lambda: (a := ask(worker, target=target)).status_code != 503 and a)


def test_a_worker_is_told_to_come_again_and_then_gets_what_its_job_requires(claimed, index, build):
    worker = claimed("arenaprobe")
    index.gate.clear()
    first = ask(worker)
    assert (first.status_code, code(first), first.headers["retry-after"]) == (503, "resolving", "2")
    index.gate.set()
    listing = answered(worker, build).json()
    files = {f["path"]: f for f in listing["files"]}
    assert list(files) == ["arenadeep-1.5-py3-none-any.whl", "arenaprobe-1.0-py3-none-any.whl"]
    for path, described in files.items():
        answer = ask(worker, path)
        assert (len(answer.content), digest_of(answer.content)) == (described["size"], described["digest"])
        assert answer.headers["etag"] == f'"{described["digest"]}"'
    asked = len(index.asked)
    assert ask(worker).json() == listing
    assert len(index.asked) == asked  # the index is asked once


def test_wheels_are_those_of_the_workers_interpreter_not_the_servers(claimed, index, build):
    tags = {"mine": f"cp3{sys.version_info.minor}-none-any", "other": "cp312-cp312-manylinux_2_17_aarch64"}
    for which, tag in tags.items():
        index.add("arenabuilt", "1.0", f"WHICH = {which!r}\n", tag=tag)
    worker = claimed("arenabuilt")
    listing = answered(worker, build, OTHER).json()
    assert [f["path"] for f in listing["files"]] == ["arenabuilt-1.0-cp312-cp312-manylinux_2_17_aarch64.whl"]
    if sys.version_info[:2] != (3, 12):
        assert answered(worker, build).json()["digest"] != listing["digest"]


def test_nothing_but_the_wheels_of_the_held_job_can_be_read(claimed, index, build, pool):
    worker = claimed("arenadeep")
    assert (
        ask(worker, "arenadeep-1.5-py3-none-any.whl").status_code == 404
    )  # nobody has asked for the listing
    assert answered(worker, build).status_code == 200
    for path in ("listing.json", "..%2flisting.json", "arenaprobe-1.0-py3-none-any.whl", "%2e%2e"):
        assert ask(worker, path).status_code == 404
    plain = claimed(name="plain")
    assert ask(plain).status_code == 404
    assert ask(plain, "arenadeep-1.5-py3-none-any.whl").status_code == 404
    worker.hand_back()
    assert (ask(worker).status_code, code(ask(worker))) == (409, "fenced")
    assert worker.ask("GET", "/api/v1/wheels/", params=MINE).status_code == 409  # its own token opens no job


@pytest.mark.parametrize("missing", ["arenanone", "arenaprobe==9", "arenaprobe, arenadeep<1"])
def test_what_cannot_be_had_is_the_users_to_mend_in_the_resolvers_words(claimed, index, build, missing):
    answer = answered(claimed(*missing.split(", ")), build)
    assert (answer.status_code, code(answer)) == (422, "bad-requirements")
    assert f"requirements ({missing}) cannot be had as wheels: " in answer.json()["message"]
    assert "No matching distribution" in answer.text or "ResolutionImpossible" in answer.text


def test_a_package_without_a_wheel_is_never_built(claimed, index, build):
    index.packages["arenasource"] = {"arenasource-1.0.tar.gz": b"whatever"}
    assert answered(claimed("arenasource"), build).status_code == 422


@pytest.mark.parametrize(
    "odd",
    [
        "./evil",
        "/etc",
        "evil @ file:///etc",
        "https://x/evil-1.0.tar.gz",
        "-r /etc/passwd",
        "--pre",
        "evil-1.0.tar.gz",
    ],
)
def test_only_names_of_packages_are_taken(claimed, index, odd):
    answer = ask(claimed(odd))
    assert (answer.status_code, code(answer)) == (422, "bad-requirements")
    assert index.asked == []


@pytest.mark.parametrize("status", [500, 403])
def test_an_index_that_does_not_answer_is_not_the_users_fault(claimed, index, build, status):
    index.status = status
    answer = answered(claimed("arenaprobe"), build)
    assert (answer.status_code, code(answer)) == (424, "no-index"), answer.text
    index.status = 200


def test_an_index_that_is_gone_is_not_the_users_fault_and_is_asked_again(claimed, index, build, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
        worker = claimed("arenaprobe")
        answer = answered(worker, build)
    assert (answer.status_code, code(answer)) == (424, "no-index"), answer.text
    assert answered(worker, build).status_code == 200


def test_a_resolver_that_takes_too_long_is_ended(claimed, index, pool, monkeypatch):
    monkeypatch.setattr(wheel_files, "RESOLVE_S", 0.0)
    index.gate.clear()
    worker = claimed("arenaprobe")
    assert ask(worker).status_code == 503
    (resolver,) = pool.world.resolvers.at_work.values()
    answer = ask(worker)
    assert (answer.status_code, "longer than 0 s" in answer.text) == (424, True)
    assert resolver.process.returncode is not None
    assert list(pool.world.home.wheels.iterdir()) == []


def test_a_server_that_stops_leaves_no_resolver_behind_and_the_next_one_begins_again(
    claimed, index, build, pool
):
    index.gate.clear()
    worker = claimed("arenaprobe")
    assert ask(worker).status_code == 503
    (resolver,) = pool.world.resolvers.at_work.values()
    pool.world.resolvers.close()
    assert resolver.process.returncode is not None
    (pool.world.home.wheels / ".draft-of-a-killed-server").mkdir()
    index.gate.set()
    assert answered(worker, build).status_code == 200
    assert len(list(pool.world.home.wheels.iterdir())) == 1
