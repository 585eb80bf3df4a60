"""Who may do what: every route has a role, and the roles below it are refused."""

import pytest
from starlette.testclient import TestClient

from arena_gitops.spec.resource import Address
from arena_runner.server.app import create_app
from arena_runner.server.auth import Role, issue
from arena_runner.server.services import resources

DIGEST = "sha256:" + "0" * 64

ROUTES = [
    ("GET", "/api/v1/state?stack=team", {Role.VIEWER, Role.EDITOR, Role.ADMIN}),
    ("GET", "/api/v1/tiers", {Role.VIEWER, Role.EDITOR, Role.ADMIN}),
    ("GET", "/api/v1/runs/r_1", {Role.VIEWER, Role.EDITOR, Role.ADMIN}),
    ("GET", "/api/v1/runs/r_1/events", {Role.VIEWER, Role.EDITOR, Role.ADMIN}),
    ("GET", "/api/v1/runs/r_1/logs", {Role.VIEWER, Role.EDITOR, Role.ADMIN}),
    ("POST", "/api/v1/runs/r_1/stop", {Role.EDITOR, Role.ADMIN}),
    ("PUT", "/api/v1/resources/project/p", {Role.EDITOR, Role.ADMIN}),
    ("DELETE", "/api/v1/resources/project/p?stack=team", {Role.EDITOR, Role.ADMIN}),
    ("GET", "/api/v1/deployments/chat/revisions", {Role.VIEWER, Role.EDITOR, Role.ADMIN}),
    ("POST", "/api/v1/deployments/chat/rollback", {Role.EDITOR, Role.ADMIN}),
    ("POST", "/api/v1/deployments/chat/resume", {Role.EDITOR, Role.ADMIN}),
    ("POST", "/api/v1/checks", {Role.EDITOR, Role.ADMIN}),
    ("HEAD", f"/api/v1/blobs/{DIGEST}", {Role.VIEWER, Role.EDITOR, Role.ADMIN, Role.WORKER}),
    ("GET", f"/api/v1/blobs/{DIGEST}", {Role.VIEWER, Role.EDITOR, Role.ADMIN, Role.WORKER}),
    ("PUT", f"/api/v1/blobs/{DIGEST}", {Role.EDITOR, Role.ADMIN, Role.WORKER}),
    ("POST", "/api/v1/workers/claim", {Role.WORKER, Role.ADMIN}),
    ("POST", "/api/v1/workers/jobs/r_1/0/events", {Role.WORKER, Role.ADMIN}),
    ("GET", "/i/chat/status", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("POST", "/i/chat/generate", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("POST", "/i/chat/generate_stream", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("GET", "/i/chat/sessions", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("GET", "/i/chat/sessions/s", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("DELETE", "/i/chat/sessions/s", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("GET", "/v1/models", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("GET", "/v1/models/chat", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("POST", "/v1/completions", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    ("POST", "/v1/chat/completions", {Role.INFERENCE, Role.EDITOR, Role.ADMIN}),
    *(
        ("GET", path, {Role.VIEWER, Role.EDITOR, Role.ADMIN})
        for path in (
            "/api/users/current",
            "/api/users/credits",
            "/api/cli/v1/resources/list",
            "/api/cli/v1/models",
            "/api/cli/v1/projects",
            "/api/cli/v1/datasets",
            "/api/cli/v1/datasets/exists?name=d",
            "/api/cli/v1/experiments/list",
            "/api/cli/v1/experiments/jobs/checkpoints?experiment_name=e",
            "/api/cli/v1/experiments/metrics?experiment_name=e",
            "/api/cli/v1/inference/deployments/list",
            "/api/cli/v1/inference/deployments/one?name=d",
        )
    ),
    ("POST", "/api/cli/v1/models/info", {Role.VIEWER, Role.EDITOR, Role.ADMIN}),
    *(
        (method, path, {Role.EDITOR, Role.ADMIN})
        for method, path in (
            ("POST", "/api/cli/v1/projects/create"),
            ("DELETE", "/api/cli/v1/projects/delete"),
            ("POST", "/api/cli/v1/datasets/create"),
            ("DELETE", "/api/cli/v1/datasets/delete"),
            ("POST", "/api/cli/v1/experiments/jobs/submit"),
            ("POST", "/api/cli/v1/experiments/jobs/stop"),
            ("POST", "/api/cli/v1/experiments/jobs/resume"),
            ("POST", "/api/cli/v1/inference/deploy"),
        )
    ),
]
OPEN = {"/healthz", "/readyz", "/openapi.json", "/docs", "/docs/oauth2-redirect"}


@pytest.fixture
def client(world):
    with TestClient(create_app(world)) as client:
        yield client


@pytest.mark.parametrize(("method", "path", "allowed"), ROUTES)
def test_a_route_is_open_to_its_roles_only(world, client, method, path, allowed):
    refused = set()
    for role in Role:
        headers = {"Authorization": f"Bearer {issue(world, role, 'someone')}"}
        if client.request(method, path, headers=headers).status_code == 403:
            refused.add(role)
    assert refused == set(Role) - allowed


def test_the_table_above_has_every_route(client):
    known = {(method, path.partition("?")[0]) for method, path, _ in ROUTES}
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        filled = path.replace("{run_id}", "r_1").replace("{segment}", "0").replace("{digest}", DIGEST)
        filled = (
            filled.replace("{kind}/{name}", "project/p")
            .replace("{deployment}", "chat")
            .replace("{session_id}", "s")
        )
        filled = filled.replace("/v1/models/{name}", "/v1/models/chat")
        for method in methods:
            assert filled in OPEN or (method.upper(), filled) in known, f"{method} {path} has no role test"


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
    files = [p for p in world.home.root.rglob("*") if p.is_file()]
    assert files
    assert all(token.encode() not in path.read_bytes() for path in files)
