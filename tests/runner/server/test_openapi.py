"""The description of the API is complete, published, and true: schemathesis asks every native route strange things."""

import json
import re
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from postgres import programs
from schemathesis import GenerationMode

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Tier
from arena_runner.server.app import create_app
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.auth import Role, issue
from arena_runner.server.home import Home
from arena_runner.server.services import resources
from arena_runner.server.settings import Settings, TierFile
from arena_runner.server.store.database import Store
from arena_runner.server.world import World

PUBLISHED = Path(__file__).resolve().parents[3] / "schemas" / "openapi.json"
WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
NATIVE = r"^/(api/v1/|healthz|readyz|metrics)"


@pytest.fixture(scope="module")
def document():
    return create_app(None).openapi()


def operations(document):
    return [(m, p, o) for p, methods in document["paths"].items() for m, o in methods.items()]


def test_the_published_copy_is_fresh(document):
    """When this fails: make schemas."""
    assert json.loads(PUBLISHED.read_text("utf-8")) == document


def test_every_route_says_how_to_prove_who_one_is_and_how_it_refuses(document):
    schemes = set(document["components"]["securitySchemes"])
    assert schemes == {"bearer", "browser"}
    for method, path, operation in operations(document):
        assert operation["responses"]["default"]["content"]["application/json"]["schema"], (method, path)
        if path not in {"/healthz", "/readyz"} and not path.startswith("/realms/"):
            assert operation["x-roles"], (method, path)
            assert {name for need in operation["security"] for name in need} == schemes


def test_every_operation_has_a_name_of_its_own_and_a_tag_that_is_explained(document):
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    explained = {tag["name"] for tag in document["tags"]}
    assert {tag for _, _, operation in operations(document) for tag in operation["tags"]} <= explained


def test_of_every_native_answer_the_shape_is_known(document):
    for method, path, operation in operations(document):
        if path.startswith("/api/v1/") and method != "head":
            for status, answer in operation["responses"].items():
                for media, content in answer.get("content", {}).items():
                    assert content.get("schema"), f"{method} {path} {status} {media}"


STRANGE = settings(
    max_examples=8, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
"""Always the same questions: a failure of today is one of tomorrow."""


@pytest.fixture(scope="module")
def database(request):
    """The address of the database that refuses more: PostgreSQL, where it is installed."""
    if programs() is None:
        yield None
        return
    with request.getfixturevalue("postgres").database() as url:
        yield url


@pytest.fixture(scope="module")
def api(tmp_path_factory, build, database):
    """A server's insides with a few things in it, and its description with an admin's token."""
    home = Home(tmp_path_factory.mktemp("strange") / "home")
    home.prepare()
    tier = Tier(id="local", num_cpus=2, ram_gb=4.0, credits_per_node_hour=1.0, slots=0)
    store = Store.open(database or f"sqlite:///{home.database}")
    world = World(home, store, BlobStore(home.blobs), Settings(), TierFile(tiers=(tier,)))
    made = resources.put(world, resources.Put(Address("experiment", "exp"), build.experiment(), None))
    resources.put(world, resources.Put(Address("deployment", "chat"), build.deployment(), None))
    app = create_app(world)
    app.state.known = {"run_id": made.run.run_id, "deployment": "chat", "digest": world.blobs.put(b"x")}
    app.state.token = issue(world, Role.ADMIN, "schemathesis")
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    store.close()


@pytest.fixture(scope="module")
def checks():
    schemathesis.checks.load_all_checks()
    return schemathesis.checks.CHECKS.get_by_names(WANTED)


def native():
    """Every native operation, asked well and asked wrongly; one that takes nothing cannot be asked wrongly."""
    for method, path, operation in operations(create_app(None).openapi()):
        if re.match(NATIVE, path):
            yield method.upper(), path, GenerationMode.POSITIVE
            if "parameters" in operation or "requestBody" in operation:
                yield method.upper(), path, GenerationMode.NEGATIVE


@pytest.mark.parametrize(
    ("method", "path", "mode"), list(native()), ids=lambda part: getattr(part, "value", part)
)
def test_whatever_is_asked_the_answer_is_one_that_was_described(api, checks, method, path, mode):
    operation = api[path][method]
    headers = {"Authorization": f"Bearer {api.app.state.token}"}

    @settings(STRANGE)
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        if (
            mode is GenerationMode.POSITIVE
        ):  # things that are there, asked well; the rest asks for anything, anyhow
            known = {
                name: value for name, value in api.app.state.known.items() if name in case.path_parameters
            }
            case.path_parameters.update(known)
        case.call_and_validate(headers=headers, checks=checks)

    ask()
