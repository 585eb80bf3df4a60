"""A partner's program: one token, many users of its own (`X-External-User-Id`)."""

import pytest
from starlette.testclient import TestClient

pytestmark = pytest.mark.one_database


@pytest.fixture
def ask(app, token_of):
    token = token_of("editor", "acme")
    with TestClient(app) as http:

        def call(method, path, user=None, **options):
            named = {"X-External-User-Id": user} if user is not None else {}
            return http.request(
                method, path, headers={"Authorization": f"Bearer {token}", **named}, **options
            )

        yield call


def test_a_user_is_told_apart_from_the_others_and_from_the_owner_of_the_token(ask):
    told = [ask("GET", "/api/users/current", user).json()["first_name"] for user in (None, "", "u-1", "u-2")]
    assert told == ["acme", "acme", "acme/u-1", "acme/u-2"]


def test_what_is_recorded_names_the_user(ask):
    assert ask("PUT", "/api/v1/secrets/JUDGE_KEY", "u-1", json={"value": "x"}).status_code in {200, 201}
    (secret,) = ask("GET", "/api/v1/secrets").json()
    assert secret["by"] == "acme/u-1"


def test_a_user_has_no_more_rights_than_the_token(app, token_of):
    headers = {"Authorization": f"Bearer {token_of('viewer')}", "X-External-User-Id": "u-1"}
    with TestClient(app) as http:
        answer = http.put("/api/v1/secrets/JUDGE_KEY", headers=headers, json={"value": "x"})
    assert answer.status_code == 403


@pytest.mark.parametrize("user", ["a b", "a/b", "é", "x" * 129, "../x"])
def test_what_cannot_be_an_id_is_refused_in_words(ask, user):
    answer = ask("GET", "/api/v1/state?stack=team", user.encode())
    assert (answer.status_code, answer.json()["code"]) == (400, "bad-external-user")
