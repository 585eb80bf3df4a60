"""Device login: a program asks, a person approves, and it gets no more than the person has, for no longer."""

import jwt
import pytest

from arena_runner.server.auth import Role, token_id
from arena_runner.server.services import device_logins, tokens
from arena_runner.server.services.device_logins import ACCESS_S, INTERVAL_S, LASTS_S, REFRESH_S
from arena_runner.server.store.accounts import DeviceLoginRow
from arena_runner.server.store.tables import TokenRow

OIDC = "/realms/arena/protocol/openid-connect"
STATE = "/api/v1/state?stack=team"
CLIENT = {"client_id": "arena-cli"}


class Program:
    """A client as the published one speaks: forms, with the fields it leaves empty."""

    def __init__(self, http, clock):
        self.http, self.clock = http, clock

    def start(self):
        form = {**CLIENT, "scope": "openid profile email"}
        self.asked = self.http.post(f"{OIDC}/auth/device", data=form).json()
        return self

    def poll(self, wait_s=INTERVAL_S):
        self.clock.now += wait_s
        empty = {"username": "", "password": "", "code": "", "redirect_uri": "", "scope": "openid"}
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        form = {**CLIENT, **empty, "grant_type": grant, "device_code": self.asked["device_code"]}
        return self.http.post(f"{OIDC}/token", data=form)

    def refresh(self, token):
        form = {**CLIENT, "grant_type": "refresh_token", "refresh_token": token}
        return self.http.post(f"{OIDC}/token", data=form)

    def status(self, token):
        return self.http.get(STATE, headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.fixture
def program(stranger, world):
    return Program(stranger.http, world.clock).start()


@pytest.fixture
def ada(person, token_of):
    """A person who is logged in, and the text of her token."""
    person.token = token_of(Role.EDITOR)
    person.log_in(person.token)
    return person


def decide(person, program, decision="approve", **more):
    page = "/device?user_code=" + program.asked["user_code"]
    return person.send(page, decision=decision, **{"role": "editor", **more})


@pytest.fixture
def granted(ada, program):
    assert decide(ada, program).status_code == 200
    answer = program.poll()
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_program_is_told_where_and_how_to_ask(program):
    asked = program.asked
    assert asked["verification_uri"] == "http://testserver/device"
    assert asked["verification_uri_complete"].endswith("/device?user_code=" + asked["user_code"])
    assert (asked["expires_in"], asked["interval"]) == (LASTS_S, INTERVAL_S)


def test_an_approved_program_may_do_what_was_approved(program, granted):
    assert program.status(granted["access_token"]) == 200
    assert granted["token_type"] == "Bearer"


def test_the_bearer_token_says_until_when_it_is_valid(world, granted):
    claims = jwt.decode(granted["access_token"], options={"verify_signature": False})
    assert claims["exp"] == int(world.clock() + ACCESS_S)
    assert (claims["sub"], claims["role"]) == ("ada", "editor")


def test_a_forged_token_of_that_shape_opens_nothing(program, granted):
    claims = jwt.decode(granted["access_token"], options={"verify_signature": False})
    for forged in (
        jwt.encode({**claims, "role": "admin"}, "x" * 32, algorithm="HS256"),
        jwt.encode(claims, None, algorithm="none"),
    ):
        assert program.status(forged) == 401


def test_until_somebody_approves_the_program_waits(program):
    answer = program.poll()
    assert (answer.status_code, answer.json()["error"]) == (400, "authorization_pending")


def test_a_program_in_a_hurry_is_slowed_down(program):
    program.poll()
    assert program.poll(0.1).json()["error"] == "slow_down"
    assert program.poll(INTERVAL_S).json()["error"] == "slow_down"
    assert program.poll(60).json()["error"] == "authorization_pending"


def test_a_denied_program_is_sent_away(ada, program):
    assert "Denied" in decide(ada, program, "deny").text
    assert program.poll().json()["error"] == "access_denied"


def test_an_approval_that_comes_too_late_is_none(world, ada, program):
    world.clock.now += LASTS_S
    assert program.poll(0).json()["error"] == "expired_token"
    assert ada.http.get("/device?user_code=" + program.asked["user_code"]).status_code == 404


def test_a_code_is_good_once(program, granted):
    assert program.poll().json()["error"] == "invalid_grant"


def test_a_code_nobody_gave_out_is_refused(program):
    program.asked["device_code"] = "guess"
    assert program.poll().json()["error"] == "invalid_grant"


def test_a_code_is_understood_however_it_was_typed(world, program):
    typed = program.asked["user_code"].lower().replace("-", " ")
    assert device_logins.waiting(world, typed) is not None
    assert device_logins.waiting(world, "") is None


def test_a_refresh_token_gives_new_bearer_tokens_and_opens_nothing_itself(world, program, granted):
    world.clock.now += ACCESS_S
    assert program.status(granted["access_token"]) == 401
    again = program.refresh(granted["refresh_token"]).json()
    assert program.status(again["access_token"]) == 200
    assert program.status(granted["refresh_token"]) == 401
    assert again["refresh_token"] == granted["refresh_token"]


def test_a_login_ends_in_the_end(world, program, granted):
    world.clock.now += REFRESH_S
    answer = program.refresh(granted["refresh_token"])
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


def test_a_logout_ends_the_login_with_all_its_tokens(program, granted):
    form = {**CLIENT, "refresh_token": granted["refresh_token"]}
    assert program.http.post(f"{OIDC}/logout", data=form).status_code == 204
    assert program.status(granted["access_token"]) == 401
    assert program.refresh(granted["refresh_token"]).json()["error"] == "invalid_grant"
    assert program.http.post(f"{OIDC}/logout", data=form).status_code == 204


def test_a_login_ends_with_the_token_of_whoever_approved_it(world, ada, program, granted):
    tokens.revoke(world, token_id(ada.token))
    assert program.status(granted["access_token"]) == 401
    assert program.refresh(granted["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_login_outlives_the_browser_in_which_it_was_approved(ada, program, granted):
    ada.send("/logout", page="/login")
    assert program.status(granted["access_token"]) == 200


def test_a_login_is_listed_and_can_be_revoked(world, program, granted):
    login = next(token for token in tokens.listing(world) if token.kind == "login")
    assert (login.subject, login.name, login.role) == ("ada", "login of arena-cli", "editor")
    tokens.revoke(world, login.id)
    assert program.status(granted["access_token"]) == 401


def test_nobody_gives_a_role_that_he_has_not(ada, program):
    assert decide(ada, program, role="admin").status_code == 403
    assert program.poll().json()["error"] == "authorization_pending"


def test_a_smaller_role_can_be_given(ada, program):
    decide(ada, program, role="viewer")
    token = program.poll().json()["access_token"]
    stop = program.http.post("/api/v1/runs/r_1/stop", headers={"Authorization": f"Bearer {token}"})
    assert (program.status(token), stop.status_code) == (200, 403)


def test_who_is_not_logged_in_logs_in_first_and_comes_back(person, program, token_of):
    page = "/device?user_code=" + program.asked["user_code"]
    answer = person.http.get(page)
    assert answer.status_code == 303
    back = person.log_in(token_of(Role.EDITOR), answer.headers["location"]).headers["location"]
    assert back == page


def test_another_page_cannot_approve(ada, program):
    code = program.asked["user_code"]
    form = {"csrf": "x", "user_code": code, "decision": "approve", "role": "editor"}
    assert ada.http.post("/device", data=form).status_code == 403
    assert program.poll().json()["error"] == "authorization_pending"


def test_the_page_says_who_asks_and_shows_the_code(ada, program):
    text = ada.http.get("/device?user_code=" + program.asked["user_code"]).text
    assert program.asked["user_code"] in text
    assert "arena-cli" in text
    assert "testclient" in text


def test_what_is_stored_of_a_login_is_no_use_to_a_thief(world, program, granted):
    with world.store.read() as session:
        rows = [*session.query(TokenRow), *session.query(DeviceLoginRow)]
    text = repr([vars(row) for row in rows])
    assert granted["access_token"] not in text
    assert granted["refresh_token"] not in text


@pytest.mark.parametrize(
    ("path", "form", "error"),
    [
        ("token", {**CLIENT, "grant_type": "password"}, "unsupported_grant_type"),
        ("token", {"grant_type": "refresh_token"}, "invalid_request"),
        ("auth/device", {}, "invalid_request"),
        ("auth/device", {"client_id": "<b>x</b>"}, "invalid_request"),
    ],
)
def test_a_wrong_request_is_answered_in_the_words_of_oauth(person, path, form, error):
    answer = person.http.post(f"{OIDC}/{path}", data=form)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


def test_asking_without_end_ends(world, stranger, monkeypatch):
    monkeypatch.setattr(device_logins, "PENDING_LIMIT", 3)
    answers = [stranger.http.post(f"{OIDC}/auth/device", data=CLIENT).status_code for _ in range(4)]
    assert answers == [200, 200, 200, 503]
    world.clock.now += 2 * LASTS_S + 1
    assert stranger.http.post(f"{OIDC}/auth/device", data=CLIENT).status_code == 200
