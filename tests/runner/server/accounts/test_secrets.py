"""Secrets of a server: in by one door, out to the worker whose job names them, and nowhere else."""

import json
import logging

import pytest
from cryptography.fernet import Fernet

from arena_gitops.errors import UsageError
from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.job import RunState
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ClaimRequest
from arena_runner.server.auth import Role
from arena_runner.server.keys import VARIABLE, Keys, keys_of
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import jobs, resources, runs, secrets
from arena_runner.server.store.accounts import SecretRow

VALUE = "canary-0f1e2d3c4b5a"


@pytest.fixture
def ask(person, token_of):
    """`ask("PUT", "/KEY", role, json=…)`."""

    def call(method, path="", role=Role.EDITOR, **more):
        headers = {"Authorization": f"Bearer {token_of(role, f'a {role}')}"}
        return person.http.request(method, f"/api/v1/secrets{path}", headers=headers, **more)

    return call


@pytest.fixture
def judged(world, build):
    """`judged("KEY")`: the body of an experiment whose reward names these secrets."""

    def make(*names, seed=1):
        digest = world.blobs.put(b"def reward(q, a, c): return 1.0")
        reward = {"address": "reward/r", "files": {"r.py": digest}, "entry": "r.py", "secrets": list(names)}
        body = build.experiment(seed=seed)
        spec = body.spec | {"inputs": {"reward": reward}}
        return body.model_copy(
            update={"spec": spec, "fingerprint": fingerprint({"s": seed, "n": list(names)}, {})}
        )

    return make


def put(world, body):
    return resources.put(world, resources.Put(Address("experiment", "exp"), body, None))


def claim(world):
    return jobs.claim(world, ClaimRequest(worker_id="w", tier="local"))


def test_each_value_has_a_number_that_no_other_had(ask, world):
    def version():
        with world.store.read() as session:
            return secrets.versions(session).get("JUDGE_KEY")

    def stored(value):
        return ask("PUT", "/JUDGE_KEY", json={"value": value}).json()["version"]

    first = stored("a")
    assert (stored("a"), version()) == (first, first), "the same value again is no other"
    second = stored("b")
    ask("DELETE", "/JUDGE_KEY")
    assert version() is None
    assert len({first, second, stored("a")}) == 3


def test_a_value_goes_in_and_only_its_name_comes_out(ask):
    answer = ask("PUT", "/JUDGE_KEY", json={"value": VALUE})
    assert answer.status_code == 200
    listed = ask("GET", role=Role.VIEWER)
    assert [(row["name"], row["by"], row["readable"]) for row in listed.json()] == [
        ("JUDGE_KEY", "a editor", True)
    ]
    assert VALUE not in answer.text + listed.text


def test_it_is_stored_encrypted(world, ask):
    ask("PUT", "/JUDGE_KEY", json={"value": VALUE})
    with world.store.read() as session:
        row = session.get_one(SecretRow, "JUDGE_KEY")
    assert VALUE not in repr(vars(row))
    assert all(VALUE.encode() not in p.read_bytes() for p in world.home.root.rglob("*") if p.is_file())


def test_setting_it_again_replaces_it_and_removing_forgets_it(world, ask):
    for value in (VALUE, "another"):
        ask("PUT", "/JUDGE_KEY", json={"value": value})
    with world.store.read() as session:
        assert secrets.values(session, world, ["JUDGE_KEY", "OTHER"]) == {"JUDGE_KEY": "another"}
    assert ask("DELETE", "/JUDGE_KEY").status_code == 204
    assert ask("DELETE", "/JUDGE_KEY").status_code == 404
    assert ask("GET").json() == []


@pytest.mark.parametrize("name", ["a%00b", "%F0%9F%94%91"])
def test_a_name_that_no_secret_has_is_unknown(ask, name):
    assert ask("DELETE", f"/{name}").status_code == 404


@pytest.mark.parametrize(
    "name", ["key", "A-B", "1A", "LD_PRELOAD", "PYTHONPATH", "PATH", "ARENA_SECRET_X", "HOME"]
)
def test_a_name_that_is_none_or_has_another_meaning_is_refused(ask, name):
    answer = ask("PUT", f"/{name}", json={"value": VALUE})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-name")


@pytest.mark.parametrize(
    "body", [{}, {"value": ""}, {"value": "a" * 70_000}, {"value": [VALUE]}, {"value": "a\0b"}]
)
def test_a_wrong_value_is_refused_without_being_repeated(ask, body, caplog):
    with caplog.at_level(logging.DEBUG):
        answer = ask("PUT", "/KEY", json=body)
    assert answer.status_code == 422
    assert VALUE not in answer.text + caplog.text


def test_the_worker_whose_job_names_it_is_given_it(world, ask, judged):
    ask("PUT", "/JUDGE_KEY", json={"value": VALUE})
    ask("PUT", "/OTHER", json={"value": "of somebody else"})
    put(world, judged("JUDGE_KEY"))
    claimed = claim(world)
    assert claimed.secrets == {"JUDGE_KEY": VALUE}
    assert VALUE not in claimed.job.model_dump_json()
    assert VALUE not in repr(claimed)


def test_a_worker_whose_job_names_none_is_given_none(world, ask, judged):
    ask("PUT", "/JUDGE_KEY", json={"value": VALUE})
    put(world, judged())
    assert claim(world).secrets == {}


def test_an_experiment_whose_secret_is_missing_is_refused_before_anything_starts(world, judged):
    with pytest.raises(RefusedError, match="does not have: JUDGE_KEY; use arena secrets set JUDGE_KEY"):
        put(world, judged("JUDGE_KEY"))
    assert claim(world) is None


def test_a_secret_removed_meanwhile_is_not_given_and_the_run_can_say_so(world, ask, judged):
    ask("PUT", "/JUDGE_KEY", json={"value": VALUE})
    run_id = put(world, judged("JUDGE_KEY")).run.run_id
    ask("DELETE", "/JUDGE_KEY")
    assert claim(world).secrets == {}
    with world.store.read() as session:
        assert runs.status(session, world, run_id).state is RunState.VALIDATING


def test_rows_exchanged_in_the_database_open_nothing(world, ask):
    for name in ("MINE", "THEIRS"):
        ask("PUT", f"/{name}", json={"value": f"value of {name}"})
    with world.store.write() as session:
        mine, theirs = session.get_one(SecretRow, "MINE"), session.get_one(SecretRow, "THEIRS")
        mine.value = theirs.value
    with world.store.read() as session:
        assert secrets.values(session, world, ["MINE"]) == {}


def test_a_database_without_its_key_opens_nothing(world, ask, monkeypatch):
    ask("PUT", "/JUDGE_KEY", json={"value": VALUE})
    monkeypatch.setenv(VARIABLE, Fernet.generate_key().decode())
    assert [row["readable"] for row in ask("GET").json()] == [False]
    with world.store.read() as session:
        assert secrets.values(session, world, ["JUDGE_KEY"]) == {}


def test_the_key_is_its_owners_alone(world):
    first = keys_of(world.home, {})
    assert world.home.secret_key.stat().st_mode & 0o777 == 0o600
    assert keys_of(world.home, {}) == first
    assert first.root.decode() not in repr(first)
    assert first.derive("a") != first.derive("b")


def test_a_key_that_others_can_read_or_that_is_none_is_refused(world, tmp_path):
    from arena_runner.server.home import Home

    home = Home(tmp_path / "other")
    home.prepare()
    home.secret_key.write_bytes(Fernet.generate_key())
    home.secret_key.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        keys_of(home, {})
    home.secret_key.chmod(0o600)
    home.secret_key.write_bytes(b"short")
    with pytest.raises(UsageError, match="holds no key"):
        keys_of(home, {})
    with pytest.raises(UsageError, match=VARIABLE):
        keys_of(home, {VARIABLE: "short"})


def test_two_processes_that_make_the_key_at_once_have_the_same(tmp_path):
    import threading

    from arena_runner.server import keys
    from arena_runner.server.home import Home

    home = Home(tmp_path / "new")
    home.prepare()
    made: list[Keys] = []
    threads = [
        threading.Thread(target=lambda: made.append(keys._of_file.__wrapped__(home.secret_key)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert len(made) == 8


def test_a_check_on_the_server_is_shown_no_secret(world, ask, judged, person, token_of):
    ask("PUT", "/JUDGE_KEY", json={"value": VALUE})
    leak = b"import os\nraise ValueError(str(dict(os.environ)))\ndef reward(q, a, c): return 1.0"
    reward = {"address": "reward/r", "files": {"r.py": world.blobs.put(leak)}, "entry": "r.py"}
    body = {"address": "experiment/e", "manifest": {"algorithm": {"name": "GRPO"}}}
    body["inputs"] = {"reward": reward | {"secrets": ["JUDGE_KEY"]}}
    headers = {"Authorization": f"Bearer {token_of(Role.EDITOR)}"}
    answer = person.http.post("/api/v1/checks", json=body, headers=headers)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert any("only a run is given" in line.get("message", "") for line in lines)
    assert VALUE not in answer.text
