"""Which database a server opens, what it says about it, and what it keeps to itself."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from arena_gitops.errors import LockedError, UsageError
from arena_runner.server.home import Home
from arena_runner.server.settings import Settings
from arena_runner.server.store.address import VARIABLE, address, database_of, shown
from arena_runner.server.store.database import Store

TEAM = "postgresql://arena:hush@db.example:5432/arena"


@pytest.fixture(autouse=True)
def no_address(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_option_goes_before_the_environment_and_that_before_the_settings(tmp_path, monkeypatch):
    home, settings = Home(tmp_path), Settings(database="postgresql://settings/arena")
    assert database_of(home, Settings(), None).database == str(tmp_path / "arena.db")
    assert database_of(home, settings, None).host == "settings"
    monkeypatch.setenv(VARIABLE, "postgresql://variable/arena")
    assert database_of(home, settings, None).host == "variable"
    assert database_of(home, settings, "postgresql://option/arena").host == "option"


@pytest.mark.parametrize("text", [TEAM, "postgres://h/a", "postgresql+psycopg2://h/a"])
def test_the_driver_is_ours(text):
    assert address(text).drivername == "postgresql+psycopg"


@pytest.mark.parametrize("text", [TEAM, "postgresql://h/a?user=arena&password=hush&sslpassword=hush"])
def test_an_address_is_shown_without_its_password(text):
    assert "hush" not in shown(address(text))
    assert shown(address(text)).startswith("postgresql://")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("arena:hush@db", "is no URL"),
        ("postgresql://arena:hush@db:port/arena", "is no URL"),
        ("mysql://arena:hush@db/arena", "mysql is not supported"),
        ("sqlite://", "forgotten at every stop"),
    ],
)
def test_a_wrong_address_is_one_clear_error_without_its_password(text, why):
    with pytest.raises(UsageError) as refused:
        address(text)
    assert why in str(refused.value)
    assert "expected postgresql://" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_settings_object_does_not_print_its_database():
    assert "hush" not in repr(Settings(database=TEAM))


def test_a_server_whose_database_does_not_answer_says_so_in_one_line(tmp_path):
    command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(tmp_path / "home")]
    environment = os.environ | {VARIABLE: "postgresql://arena:hush@127.0.0.1:9/arena"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert ended.returncode == 1
    assert "database postgresql://arena:***@127.0.0.1:9/arena" in line
    assert "hush" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_server_stays_off_a_database_until_the_first_has_left_it(postgres):
    with postgres.database() as url:
        first, second = Store(url), Store(url)
        with first.only_server(), pytest.raises(LockedError, match="another server uses database") as refused:
            ExitStack().enter_context(second.only_server(wait_s=0.3))
        assert "hush" not in str(refused.value)
        with second.only_server(wait_s=0.3):
            second.migrate()
        first.close()
        second.close()
