"""A browser's session: made from a token, dead with it, of no use to other sites."""

import pytest
from itsdangerous import Signer

from arena_runner.server import browser
from arena_runner.server.auth import Role, issue_embedded, token_id
from arena_runner.server.store.tables import TokenRow

pytestmark = pytest.mark.one_database

STATE = "/api/v1/state?stack=team"
STOP = "/api/v1/runs/r_1/stop"


@pytest.fixture
def token(token_of):
    return token_of(Role.EDITOR)


def test_a_token_becomes_a_session_that_opens_what_the_token_opens(person, token):
    answer = person.log_in(token)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert person.http.get(STATE).status_code == 200
    assert "ada" in person.http.get("/login").text


def test_the_cookie_is_for_the_browser_alone(person, token):
    cookie = person.log_in(token).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert token not in cookie


def test_over_https_the_cookie_never_travels_in_clear(person, token):
    person.http.base_url = "https://arena.example.org"
    assert "Secure" in person.log_in(token).headers["set-cookie"]


def test_without_a_session_there_is_no_answer(person):
    assert person.http.get(STATE).status_code == 401


@pytest.mark.parametrize("role", [Role.WORKER, Role.INFERENCE])
def test_machines_do_not_log_in(person, token_of, role):
    answer = person.log_in(token_of(role))
    assert answer.status_code == 403
    assert browser.COOKIE not in person.http.cookies


def test_a_wrong_token_is_said_to_be_wrong_and_not_repeated(person):
    answer = person.log_in("arena_wrong")
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert "arena_wrong" not in answer.text


def test_a_session_ends_with_its_token(world, person, token):
    person.log_in(token)
    with world.store.write() as session:
        row = session.query(TokenRow).filter_by(id=token_id(token)).one()
        row.revoked = world.clock()
    assert person.http.get(STATE).status_code == 401


def test_a_session_ends_when_the_server_forgets_its_token(world, person):
    person.log_in(issue_embedded(world, None))
    assert person.http.get(STATE).status_code == 200
    issue_embedded(world, None)
    assert person.http.get(STATE).status_code == 401


def test_a_session_ends_by_itself(world, person, token):
    person.log_in(token)
    world.clock.now += browser.SESSION_S + 1
    assert person.http.get(STATE).status_code == 401


def test_a_session_that_was_logged_out_is_dead_for_those_who_copied_it(person, stranger, token):
    person.log_in(token)
    stranger.http.cookies.update(person.http.cookies)
    assert stranger.http.get(STATE).status_code == 200
    assert person.send("/logout", page="/login").status_code == 303
    assert person.http.get(STATE).status_code == 401
    assert stranger.http.get(STATE).status_code == 401


def test_a_cookie_signed_by_somebody_else_is_no_session(person, token):
    person.log_in(token)
    text = person.http.cookies[browser.COOKIE].rpartition(".")[0]
    forged = Signer(b"guess", salt=browser.COOKIE).sign(text).decode()
    person.http.cookies.clear()
    person.http.cookies.set(browser.COOKIE, forged)
    assert person.http.get(STATE).status_code == 401


def test_what_is_in_the_cookie_is_no_bearer_token(person, stranger, token):
    person.log_in(token)
    text = person.http.cookies[browser.COOKIE].rpartition(".")[0]
    assert stranger.http.get(STATE, headers={"Authorization": f"Bearer {text}"}).status_code == 401


def test_a_cookie_changes_nothing_without_the_forms_token(world, person, token):
    person.log_in(token)
    answer = person.http.post(STOP)
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
    proof = person.form("/login")["csrf"]
    assert person.http.post(STOP, headers={browser.CSRF_HEADER: proof}).status_code == 404


def test_the_forms_token_of_one_session_is_of_no_use_to_another(person, stranger, token):
    person.log_in(token)
    stranger.log_in(token)
    proof = stranger.form("/login")["csrf"]
    assert person.http.post(STOP, headers={browser.CSRF_HEADER: proof}).status_code == 403


def test_nobody_is_logged_in_or_out_by_another_page(person, token):
    assert person.http.post("/login", data={"token": token, "csrf": "x"}).status_code == 403
    assert browser.COOKIE not in person.http.cookies
    person.log_in(token)
    assert person.http.post("/logout", data={"csrf": "x"}).status_code == 403
    assert person.http.get(STATE).status_code == 200


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://testserver"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Origin": "http://testserver"}, True),
        ({"Origin": "http://testserver:81"}, False),
        ({"Origin": "null"}, False),
        ({}, False),
    ],
)
def test_only_a_browser_that_vouches_for_our_page_is_trusted(app, person, token, headers, own):
    from fastapi import Request

    from arena_runner.server.api.door import identify

    @app.post("/proxied")
    def proxied(request: Request):
        return identify(request, trust_own_pages=True).subject

    person.log_in(token)
    assert person.http.post("/proxied", headers=headers).status_code == (200 if own else 403)


def test_after_the_login_one_is_where_one_wanted_to_be(person, token):
    answer = person.log_in(token, "/login?next=/mlflow/%23/experiments/3%3Fa%3D1")
    assert answer.headers["location"] == "/mlflow/#/experiments/3?a=1"


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        " //evil.example",
        "///evil.example",
        "http:evil",
        "javascript:alert(1)",
        "mlflow",
        "/%0d%0aSet-Cookie:x",
        "",
    ],
)
def test_a_login_never_leads_to_another_place(person, token, wanted):
    person.form("/login")
    answer = person.send("/login", token=token, next=wanted)
    goal = answer.headers["location"]
    assert goal == "/login" or (goal == wanted and wanted.startswith("/%0d"))
    assert "evil" not in person.http.get("/login", params={"next": wanted}).headers.get("location", "")


def test_a_page_lets_no_script_and_no_frame_in(person):
    answer = person.http.get('/login?next=/"><script>alert(1)</script>')
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "<script>" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


def test_every_field_of_the_form_has_a_name_for_those_who_do_not_see_it(person):
    text = person.http.get("/login").text
    assert '<label for="token">' in text
    assert 'lang="en"' in text
    assert "<title>Log in" in text
