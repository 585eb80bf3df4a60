"""Tokens from the command line: shown once, known by an id, dead at once when revoked or over."""

import json

import pytest
from click.testing import CliRunner
from sqlalchemy.exc import OperationalError

from arena_runner.cli import main
from arena_runner.server import auth
from arena_runner.server.auth import Role, issue, issue_embedded, token_id
from arena_runner.server.store.address import VARIABLE
from arena_runner.server.store.tables import TokenRow

STATE = "/api/v1/state?stack=team"


@pytest.fixture
def token(world):
    """`token("list", "--json")` on this world's home: what it printed, and how it ended."""

    def run(*args, expect=0):
        environment = {VARIABLE: world.store.url.render_as_string(hide_password=False)}
        done = CliRunner().invoke(main, ["token", "--home", str(world.home.root), *args], env=environment)
        assert done.exit_code == expect, done.output
        return done

    return run


def made(token, *args):
    return json.loads(token("create", "--json", *args).stdout)


def get(person, text):
    return person.http.get(STATE, headers={"Authorization": f"Bearer {text}"}).status_code


def test_a_new_token_opens_the_running_server_at_once(person, token):
    text = token("create", "--role", "viewer").stdout
    assert text.count("\n") == 1
    assert get(person, text.strip()) == 200


@pytest.mark.one_database
def test_another_database_than_the_homes_can_be_named(world, tmp_path):
    where = ["--home", str(tmp_path / "empty"), "--database", str(world.store.url)]
    done = CliRunner().invoke(main, ["token", *where, "create", "--role", "viewer"])
    assert auth.authenticate(world, f"Bearer {done.stdout.strip()}").role == Role.VIEWER


def test_its_text_is_printed_once_and_nowhere_else(world, token):
    text = made(token, "--role", "editor", "--name", "ci")["token"]
    assert text not in token("list", "--all", "--json").output
    assert text not in token("list").output
    assert all(text.encode() not in p.read_bytes() for p in world.home.root.rglob("*") if p.is_file())


def test_a_list_tells_what_each_is_for(token):
    made(token, "--role", "editor", "--name", "ci", "--expires", "90d")
    row = next(row for row in json.loads(token("list", "--json").stdout) if row["name"] == "ci")
    assert (row["role"], row["kind"], row["state"], row["last_used"]) == ("editor", "token", "valid", None)
    assert row["expires"] - row["created"] == 90 * 86400
    assert "ci" in token("list").stdout


def test_a_revoked_token_opens_nothing_more(person, token):
    one, other = made(token, "--role", "viewer"), made(token, "--role", "viewer")
    token("revoke", one["id"])
    assert get(person, one["token"]) == 401
    assert get(person, other["token"]) == 200
    token("revoke", one["id"])
    assert one["id"] not in token("list").stdout
    assert "revoked" in token("list", "--all").stdout


def test_an_unknown_id_is_refused_with_the_nearest_one(token):
    known = made(token, "--role", "viewer")["id"]
    done = token("revoke", known[:-1], expect=1)
    assert known in done.stderr


def test_an_expired_token_opens_nothing_more(world, person, token_of):
    text = token_of(Role.VIEWER)
    with world.store.write() as session:
        session.query(TokenRow).filter_by(id=token_id(text)).one().expires = world.clock() + 60
    assert get(person, text) == 200
    world.clock.now += 60
    assert get(person, text) == 401


def test_the_last_use_is_recorded_but_not_at_every_request(world, person, token_of):
    text = token_of(Role.VIEWER)

    def last_used():
        with world.store.read() as session:
            return session.query(TokenRow).filter_by(id=token_id(text)).one().last_used

    first = world.clock()
    get(person, text)
    world.clock.now += auth.USE_NOTED_EVERY_S - 1
    get(person, text)
    assert last_used() == first
    world.clock.now += 1
    get(person, text)
    assert last_used() == world.clock()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--role", "boss"], "'boss' is not one of"),
        ([], "Missing option '--role'"),
        (["--role", "viewer", "--expires", "soon"], "expected a duration like"),
        (["--role", "viewer", "--expires", "0d"], "longer than"),
    ],
)
def test_a_wrong_option_is_one_clear_line(token, arguments, words):
    assert words in token("create", *arguments, expect=2).stderr


def test_a_tier_is_for_workers_and_has_to_exist(token):
    assert "role worker" in token("create", "--role", "viewer", "--tier", "local", expect=1).stderr
    assert "none of this server's" in token("create", "--role", "worker", "--tier", "x", expect=1).stderr


def test_a_workers_tier_is_part_of_who_calls(world, token):
    text = made(token, "--role", "worker", "--tier", "local")["token"]
    caller = auth.authenticate(world, f"Bearer {text}")
    assert (caller.role, caller.tier, caller.run_id) == (Role.WORKER, "local", None)


def test_the_owner_of_a_home_keeps_his_token_until_it_is_revoked(world, token):
    first = issue_embedded(world, None)
    assert issue_embedded(world, first) == first
    token("revoke", token_id(first))
    assert issue_embedded(world, first) != first


def test_a_token_nobody_issued_here_is_not_adopted(world):
    assert issue_embedded(world, "arena_from_elsewhere") != "arena_from_elsewhere"


@pytest.mark.one_database
def test_a_disk_that_takes_nothing_more_does_not_keep_people_from_looking(
    world, person, token_of, monkeypatch
):
    text = token_of(Role.VIEWER)

    def full():
        raise OperationalError("commit", None, Exception("database or disk is full"))

    monkeypatch.setattr(type(world.store), "write", lambda _self: full())
    assert get(person, text) == 200


def test_derived_tokens_are_forgotten_after_they_end(world, person, token_of):
    text = token_of(Role.VIEWER)
    person.log_in(text)
    world.clock.now += 10 * 86400
    person.http.cookies.clear()
    person.log_in(text)
    with world.store.read() as session:
        assert session.query(TokenRow).filter_by(kind="browser").count() == 1


def test_the_tokens_of_the_servers_own_workers_are_not_listed(world, token):
    issue(world, Role.WORKER, "worker of r_1", run_id="r_1")
    assert json.loads(token("list", "--all", "--json").stdout) == []
