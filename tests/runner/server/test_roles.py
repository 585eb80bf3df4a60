"""Who may do what. The table is made from the app's own routes: a new one without a role, or with one that the rule
for its place does not expect, fails here."""

import re

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from arena_gitops.spec.resource import Address
from arena_runner.server.api.door import RoleCheck
from arena_runner.server.app import create_app
from arena_runner.server.auth import INCLUDES, Role, issue
from arena_runner.server.services import resources
from arena_runner.server.store.tables import TokenRow

DIGEST = "sha256:" + "0" * 64
FILLED = {"kind": "project", "digest": DIGEST, "segment": "0"}
"""Path parameters that cannot be just any word."""

OPEN = {
    "/healthz": "whether the process lives is no secret",
    "/readyz": "as above; a load balancer has no token",
    "/openapi.json": "the protocol is published",
    "/docs": "the protocol, for people",
    "/docs/oauth2-redirect": "part of it",
    "/mlflow": "leads to the slash",
    "/mlflow/{path:path}": "who may do what there has a table of its own: test_mlflow_rules",
    "/login": "who logs in has no session yet",
    "/logout": "needs the session's own proof, and nothing else",
    "/device": "asks for a browser's session itself, and sends people to the login",
    "/realms/{realm}/protocol/openid-connect/auth/device": "who asks to be let in has no token yet",
    "/realms/{realm}/protocol/openid-connect/token": "the code or the refresh token is the proof",
    "/realms/{realm}/protocol/openid-connect/logout": "the refresh token is the proof",
}
"""Routes without a role, each with its reason."""

RULES = [
    (r"\w+ /api/v1/workers/", {Role.WORKER}),
    (r"\w+ /api/v1/(models|splits|wheels)/", {Role.WORKER}),
    (r"(GET|HEAD) /api/v1/blobs/", {Role.VIEWER, Role.WORKER}),
    (r"\w+ /api/v1/blobs/", {Role.EDITOR, Role.WORKER}),
    (r"\w+ (/i/|/v1/)", {Role.INFERENCE}),
    (r"POST /api/cli/v1/models/info", {Role.VIEWER}),  # a question that has a body
    (r"(GET|HEAD) ", {Role.VIEWER}),
    (r"\w+ ", {Role.EDITOR}),
]
"""What a route's place says about its roles; the first that matches counts."""


def routes_of(routes):
    """Every route, also those of included routers."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from routes_of(inner.routes) if inner is not None else [route]


def checks_of(dependant):
    """Role checks anywhere among a route's dependencies."""
    found = [dependant.call] if isinstance(dependant.call, RoleCheck) else []
    return found + [check for part in dependant.dependencies for check in checks_of(part)]


def table():
    """(method, path, roles it declares) of every route that needs a token."""
    app = create_app(None)
    for route in routes_of(app.routes):
        if route.path in OPEN:
            continue
        checks = checks_of(route.dependant) if hasattr(route, "dependant") else []
        for method in sorted(route.methods):
            yield method, route.path, frozenset(role for check in checks for role in check.roles)


TABLE = sorted(set(table()), key=str)
TABLE_IDS = [f"{method} {path}" for method, path, _ in TABLE]


def filled(path):
    return re.sub(r"{(\w+)(:\w+)?}", lambda found: FILLED.get(found[1], "x"), path)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """One app for the whole table: nothing in it changes anything."""
    from arena_gitops.spec.wire import Tier
    from arena_runner.server.artifacts import BlobStore
    from arena_runner.server.home import Home
    from arena_runner.server.settings import Settings, TierFile
    from arena_runner.server.store.database import Store
    from arena_runner.server.world import World

    home = Home(tmp_path_factory.mktemp("roles") / "home")
    home.prepare()
    store = Store.open(f"sqlite:///{home.database}")
    tier = Tier(id="local", num_cpus=2, ram_gb=4.0, credits_per_node_hour=1.0, slots=0)
    world = World(home, store, BlobStore(home.blobs), Settings(), TierFile(tiers=(tier,)))
    with TestClient(create_app(world), raise_server_exceptions=False) as client:
        yield client, {role: issue(world, role, "someone") for role in Role}
    store.close()


@pytest.mark.parametrize(("method", "path", "declared"), TABLE, ids=TABLE_IDS)
def test_a_route_declares_the_roles_of_its_place(method, path, declared):
    expected = next(roles for rule, roles in RULES if re.match(rule, f"{method} {path}"))
    assert declared == expected, f"{method} {path} is open to {set(declared) or 'everybody'}"


@pytest.mark.parametrize(("method", "path", "declared"), TABLE, ids=TABLE_IDS)
def test_a_route_is_open_to_its_roles_only(asked, method, path, declared):
    client, tokens = asked
    answers = {
        role: client.request(method, filled(path), headers={"Authorization": f"Bearer {token}"}).status_code
        for role, token in tokens.items()
    }
    allowed = {role for role in Role if INCLUDES[role] & declared}
    assert {role for role, status in answers.items() if status not in {401, 403}} == allowed
    assert {answers[role] for role in set(Role) - allowed} <= {403}
    assert not [status for status in answers.values() if status >= 500]


@pytest.mark.parametrize(("method", "path", "declared"), TABLE, ids=TABLE_IDS)
def test_a_route_is_shut_to_those_without_a_token(asked, method, path, declared):
    client, _ = asked
    for headers in ({}, {"Authorization": "Bearer arena_unknown"}, {"Authorization": "Basic YTpi"}):
        assert client.request(method, filled(path), headers=headers).status_code == 401


def test_the_routes_without_a_role_are_those_we_know_of():
    known = {route.path for route in routes_of(create_app(None).routes)}
    assert set(OPEN) <= known
    assert len(TABLE) > 40


@pytest.fixture
def client(world):
    with TestClient(create_app(world)) as client:
        yield client


@pytest.fixture
def run(world, build):
    put = resources.Put(Address("experiment", "exp"), build.experiment(), None)
    document = resources.put(world, put)
    assert document.run is not None
    return document.run.run_id


def test_a_workers_token_opens_its_own_run_only(world, client, run):
    headers = {"Authorization": f"Bearer {issue(world, Role.WORKER, 'w', run_id='r_other')}"}
    for path, body in (
        ("/api/v1/workers/claim", {"worker_id": "w", "tier": "local", "run_id": run}),
        (f"/api/v1/workers/jobs/{run}/0/events", {"fence": 1}),
    ):
        answer = client.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_worker_reads_the_blobs_of_its_job_and_no_others(world, client, run):
    secret = world.blobs.put(b"somebody else's data")
    headers = {"Authorization": f"Bearer {issue(world, Role.WORKER, 'w', run_id=run)}"}
    answer = client.get(f"/api/v1/blobs/{secret}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_tokens_are_not_stored_in_clear(world):
    token = issue(world, Role.ADMIN, "me")
    with world.store.read() as session:
        rows = str([vars(row) for row in session.scalars(select(TokenRow))])
    assert "me" in rows
    assert token not in rows
    assert all(token.encode() not in p.read_bytes() for p in world.home.root.rglob("*") if p.is_file())
