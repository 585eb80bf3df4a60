"""A person's path in a real browser: log in, compare members, mark a version as champion; a plan shows it, an apply does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chromium import logged_in

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PICTURES = Path(__file__).resolve().parents[2] / "test-artifacts"
DEPLOYMENT = """kind: Deployment
name: word-problems
experiment: word-problems-grpo
checkpoint: "@champion"
"""


@pytest.fixture(scope="module")
def repository(site, example):
    """The example with a deployment that waits for a person, applied and settled."""
    made = example("infra-repo", {"deployments/word-problems.yaml": DEPLOYMENT})
    site.run(made, "apply", "--target", "local", "--yes", "--wait", "complete", "--timeout", "5m")
    return made


@pytest.fixture(scope="module")
def state(site, repository):
    """What `arena status` says then."""
    return site.state(repository)


@pytest.fixture(scope="module")
def tracked(state, mlflow, until):
    """The run once MLflow has all of it."""
    run = state["experiment/word-problems-grpo"]["run"]
    until(lambda: any("best" in version.aliases for version in mlflow.versions(run)))
    return run


@pytest.fixture(scope="module")
def page(site, repository):
    """A headless Chromium's page, logged in as a person is."""
    PICTURES.mkdir(exist_ok=True)
    with logged_in(site.server()["url"], site.server()["token"]) as page:
        yield page


def planned(site, repository):
    """The plan's changes that do something, and its pending ones."""
    done = site.run(repository, "plan", "--target", "local", "--json")
    found = json.loads(done.stdout)
    return {c["address"]: c for c in found["changes"] if c["action"] != "noop"}


@pytest.fixture(scope="module")
def waits(site, repository, tracked):
    """The plan before anybody has chosen; it is no change, and it is not settled."""
    site.run(repository, "plan", "--target", "local", "--detailed-exitcode", expect=0)
    site.run(repository, "plan", "--target", "local", "--require-settled", expect=3)
    return planned(site, repository)


def test_before_anybody_chooses_the_plan_waits_and_is_no_change(waits):
    assert {address: c["action"] for address, c in waits.items()} == {"deployment/word-problems": "pending"}
    assert "waiting for alias 'champion'" in waits["deployment/word-problems"]["message"]


def test_members_can_be_compared(page, tracked, mlflow):
    parent = mlflow.get_run(tracked["mlflow_url"].rpartition("/")[2])
    ids = [run.info.run_id for run in mlflow.children(parent)]
    root = tracked["mlflow_url"].partition("/#/")[0]
    asked = (
        f"runs={json.dumps(ids, separators=(',', ':'))}&experiments={json.dumps([parent.info.experiment_id])}"
    )
    page.goto("about:blank")
    page.goto(f"{root}/#/compare-runs?{asked}")
    page.get_by_text("Comparing 3 Runs", exact=False).first.wait_for(timeout=60_000)
    page.wait_for_timeout(1500)
    page.screenshot(path=PICTURES / "mlflow-compare.png", full_page=True)
    assert "fitness" in page.inner_text("body")


@pytest.mark.usefixtures("waits")
def test_a_champion_set_in_the_page_is_what_a_plan_promotes_and_an_apply_serves(
    site, repository, tracked, mlflow, page
):
    best = next(v for v in mlflow.versions(tracked) if "best" in v.aliases)
    chosen = next(v for v in mlflow.versions(tracked) if v.version != best.version)
    root = tracked["mlflow_url"].partition("/#/")[0]
    page.goto("about:blank")
    page.goto(f"{root}/#/models/{tracked['experiment']}/versions/{chosen.version}")
    page.get_by_text("Aliases").first.wait_for(timeout=60_000)
    page.get_by_role("button", name="Add").or_(page.get_by_role("button", name="aliases")).first.click()
    page.get_by_role("combobox").first.fill("champion")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save aliases").click()
    page.get_by_role("dialog").wait_for(state="hidden", timeout=30_000)
    page.get_by_text("@ champion").first.wait_for(timeout=30_000)
    page.screenshot(path=PICTURES / "mlflow-champion.png")

    plan = planned(site, repository)
    promoted = plan["deployment/word-problems"]
    assert {address: c["action"] for address, c in plan.items()} == {"deployment/word-problems": "promote"}
    assert f"@champion is version {chosen.version}" in promoted["message"]

    site.run(repository, "apply", "--target", "local", "--yes", "--wait", "complete", "--timeout", "3m")
    served = site.state(repository)["deployment/word-problems"]["deployment"]
    assert (served["state"], served["checkpoint"]) == ("serving", chosen.tags["checkpoint"])
    assert planned(site, repository) == {}
