"""What people may ask of MLflow, as a table; every route that MLflow itself has is on one side of it."""

import re

import pytest

from arena_runner.server.mlflow_rules import Need, alias_problem, label_problem, need, only_asks

API = "ajax-api/2.0/mlflow"

TABLE = [
    ("GET", "", Need.READ),
    ("GET", "static-files/static/js/main.js", Need.READ),
    ("HEAD", "get-artifact", Need.READ),
    ("GET", f"{API}/runs/get", Need.READ),
    ("GET", "api/2.0/mlflow/registered-models/alias", Need.READ),
    ("GET", "api/2.0/mlflow-artifacts/artifacts/1/r/artifacts/a b/ä.json", Need.READ),
    ("POST", f"{API}/runs/search", Need.READ),
    ("POST", f"{API}/experiments/search-datasets", Need.READ),
    ("POST", "graphql", Need.READ),
    ("POST", "api/2.0/mlflow/registered-models/alias", Need.ALIAS),
    ("DELETE", f"{API}/registered-models/alias", Need.ALIAS),
    ("POST", f"{API}/runs/set-tag", Need.LABEL),
    ("DELETE", f"{API}/model-versions/delete-tag", Need.LABEL),
    ("POST", f"{API}/runs/create", Need.NEVER),
    ("POST", f"{API}/runs/log-batch", Need.NEVER),
    ("POST", f"{API}/runs/delete", Need.NEVER),
    ("POST", f"{API}/model-versions/create", Need.NEVER),
    ("DELETE", f"{API}/registered-models/delete", Need.NEVER),
    ("PATCH", f"{API}/registered-models/update", Need.NEVER),
    ("PUT", "api/2.0/mlflow-artifacts/artifacts/1/r/artifacts/x", Need.NEVER),
    ("GET", "ajax-api/3.0/mlflow/gateway/secrets/list", Need.NEVER),
    ("POST", f"{API}/runs/search/../create", Need.NEVER),
    ("POST", f"{API}/runs//search", Need.NEVER),
    ("GET", "static-files/../../etc/passwd", Need.NEVER),
    ("GET", "metrics", Need.NEVER),
    ("POST", f"{API}/runs/search\n", Need.NEVER),
    ("BREW", f"{API}/runs/get", Need.NEVER),
]


@pytest.mark.parametrize(("method", "path", "expected"), TABLE)
def test_a_request_needs(method, path, expected):
    assert need(method, path) is expected


SEARCHES = {
    f"{kind}/search" for kind in ("runs", "experiments", "logged-models", "traces", "datasets", "issues")
}
SEARCHES |= {"registered-models/get-latest-versions", "prompt-optimization/jobs/search"}
SEARCHES |= {f"traces/{what}" for what in ("batchGetInfos", "metrics", "calculate-filter-correlation")}
CHOICES = {"registered-models/alias", "runs/set-tag", "runs/delete-tag"}
CHOICES |= {
    f"{kind}/{what}-tag" for kind in ("registered-models", "model-versions") for what in ("set", "delete")
}
CHOICES |= {"experiments/set-experiment-tag", "experiments/delete-experiment-tag"}


def test_of_all_that_mlflow_can_do_people_search_choose_and_label_only():
    """The routes are MLflow's own: a new version that adds one that writes cannot slip through."""
    from mlflow.server import handlers

    allowed = set()
    for path, _, methods in handlers.get_endpoints():
        plain = re.sub(r"<[^>]+>", "x", path).lstrip("/")
        allowed |= {plain for m in methods if m != "GET" and need(m, plain) is not Need.NEVER}
    assert {path.rpartition("mlflow/")[2] for path in allowed} == SEARCHES | CHOICES | {"graphql"}


@pytest.mark.parametrize("key", ["arena.run", "step", "digest", "mlflow.parentRunId", "", None, 7])
def test_tags_by_which_the_server_finds_its_own_are_not_for_people(key):
    assert label_problem({"key": key, "value": "x"})


@pytest.mark.parametrize("key", ["reviewed-by", "mlflow.note.content", "steps", "arena"])
def test_other_tags_are(key):
    assert label_problem({"key": key}) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "m", "alias": "best"}, "kept by the server"),
        ({"name": "m", "alias": "serving"}, "kept by the server"),
        ({"name": "m"}, "names no model and alias"),
        ({"alias": "champion"}, "names no model and alias"),
        ({"name": ["m"], "alias": "champion"}, "names no model and alias"),
    ],
)
def test_an_alias_that_is_refused_says_why(body, said):
    assert said in alias_problem(body)


def test_champion_is_for_people():
    assert alias_problem({"name": "m", "alias": "champion", "version": "3"}) is None


@pytest.mark.parametrize(
    ("query", "reads"),
    [
        ("query GetRun { mlflowGetRun(input: {runId: 1}) { run { info { runId } } } }", True),
        ("{ test }", True),
        ("mutation { testMutation(inputString: 1) { output } }", False),
        ("query A { test } mutation B { testMutation { output } }", False),
        ("fragment F on Query { test }", False),
        ("not graphql", False),
        ("", False),
        ("{ " + "a " * 6000 + "}", False),
    ],
)
def test_graphql_may_only_ask(query, reads):
    assert only_asks(query) is reads
