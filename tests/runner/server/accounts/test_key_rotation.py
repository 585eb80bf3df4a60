"""The key is replaced and no secret has to be set again."""

import pytest
from click.testing import CliRunner
from cryptography.fernet import Fernet

from arena_runner.cli import main
from arena_runner.server.keys import VARIABLE, keys_of
from arena_runner.server.services import secrets

VALUE = "canary-0f1e2d3c4b5a"

pytestmark = pytest.mark.one_database


@pytest.fixture(autouse=True)
def _no_key_of_the_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def run(world):
    def call(*args, expect=0):
        done = CliRunner().invoke(main, ["key", *args, "--home", str(world.home.root)])
        assert done.exit_code == expect, done.output
        return done.output

    return call


def value(world):
    with world.store.read() as session:
        return secrets.values(session, world, ["JUDGE_KEY"]).get("JUDGE_KEY")


def test_rotated_restarted_and_forgotten(world, run):
    secrets.put(world, "JUDGE_KEY", VALUE, "me")
    before = keys_of(world.home)
    run("rotate")
    after = keys_of(world.home)
    assert (after.older, after.root != before.root) == ((before.root,), True)
    assert world.home.secret_key.stat().st_mode & 0o777 == 0o600
    assert value(world) == VALUE  # the older key opens it
    assert "JUDGE_KEY" in run("forget", expect=64)
    assert secrets.renew(world) == 1  # as the server does when it starts
    assert secrets.renew(world) == 0
    assert run("forget") == "older keys deleted: 1\n"
    assert keys_of(world.home) == after.newest
    assert value(world) == VALUE


def test_what_a_server_stores_before_its_restart_is_encrypted_anew_too(world, run):
    running = keys_of(world.home)
    run("rotate")
    late = running.fernet.encrypt(b'["JUDGE_KEY", "late"]').decode()
    secrets.put(world, "JUDGE_KEY", "x", "me")
    with world.store.write() as session:
        session.get_one(secrets.SecretRow, "JUDGE_KEY").value = late
    assert secrets.waiting(world) == ("JUDGE_KEY",)
    assert (secrets.renew(world), value(world)) == (1, "late")


def test_a_variable_may_hold_the_new_key_and_the_one_before(world, run, monkeypatch):
    new, old = Fernet.generate_key(), Fernet.generate_key()
    monkeypatch.setenv(VARIABLE, old.decode())
    secrets.put(world, "JUDGE_KEY", VALUE, "me")
    assert VARIABLE in run("rotate", expect=64)
    monkeypatch.setenv(VARIABLE, f"{new.decode()},{old.decode()}")
    assert (secrets.renew(world), value(world)) == (1, VALUE)
    monkeypatch.setenv(VARIABLE, new.decode())
    assert value(world) == VALUE


def test_a_home_without_a_key_has_none_to_replace(tmp_path):
    done = CliRunner().invoke(main, ["key", "rotate", "--home", str(tmp_path)])
    assert (done.exit_code, "has no secret.key" in done.output) == (64, True)
