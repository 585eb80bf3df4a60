"""What a person sees in MLflow, in a real browser: member runs, curve points, registered version numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import logged_in

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PICTURES = Path(__file__).resolve().parents[2] / "test-artifacts"


@pytest.fixture(scope="module")
def state(site, example):
    """One applied experiment, settled."""
    repository = example("infra-repo")
    site.run(repository, "apply", "--target", "local", "--yes", "--wait", "complete", "--timeout", "5m")
    return site.state(repository)


@pytest.fixture(scope="module")
def tracked(state, mlflow, until):
    """The run once MLflow has all of it: its page's address and the versions."""
    run = state["experiment/word-problems-grpo"]["run"]
    until(lambda: any("best" in version.aliases for version in mlflow.versions(run)))
    until(lambda: mlflow.get_run(run["mlflow_url"].rpartition("/")[2]).info.status == "FINISHED")
    return run


@pytest.fixture(scope="module")
def page(site, state):
    """A headless Chromium's page, logged in."""
    PICTURES.mkdir(exist_ok=True)
    with logged_in(site.server()["url"], site.server()["token"]) as page:
        yield page


def _experiment_page(run: dict) -> str:
    return run["mlflow_url"].partition("/runs/")[0] + "/runs"


def test_the_members_are_runs_below_their_run(page, tracked):
    page.goto(_experiment_page(tracked))
    parent = page.locator("[role=row]").filter(has_text=tracked["experiment"]).first
    parent.locator("button").first.click(timeout=60_000)

    for name in ("m0", "m1", "m2"):
        page.get_by_text(name, exact=True).first.wait_for(timeout=30_000)
    page.screenshot(path=PICTURES / "mlflow-runs.png")

    assert {"m0", "m1", "m2"} <= set(page.inner_text("body").split())


def test_a_members_curves_have_their_points(page, tracked, mlflow):
    """Three charts of four evaluations each are in view; the points are drawn after the captions."""
    member = mlflow.children(mlflow.get_run(tracked["mlflow_url"].rpartition("/")[2]))[0]
    page.goto("about:blank")
    page.goto(_experiment_page(tracked) + f"/{member.info.run_id}/model-metrics")
    page.get_by_text("m0 (eval/reward)").first.wait_for(timeout=60_000)
    page.wait_for_function("document.querySelectorAll('path.point').length >= 12", timeout=60_000)

    page.screenshot(path=PICTURES / "mlflow-curves.png", full_page=True)

    assert page.locator("path.point").count() >= 12


def test_the_registered_versions_are_listed_with_the_best_one_marked(page, tracked, mlflow):
    versions = mlflow.versions(tracked)
    page.goto("about:blank")
    page.goto(tracked["mlflow_url"].partition("/#/")[0] + f"/#/models/{tracked['experiment']}")
    page.get_by_text("@ best").first.wait_for(timeout=60_000)
    page.screenshot(path=PICTURES / "mlflow-versions.png")

    text = page.inner_text("body")
    assert all(f"Version {version.version}" in text for version in versions)
