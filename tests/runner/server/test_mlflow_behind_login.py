"""MLflow through our login, with a real MLflow, MLflow's own client, and a person in Chromium."""

import json
from pathlib import Path

import httpx
import pytest
from chromium import chromium_page
from mlflow_inside import mlflow_inside

PICTURES = Path(__file__).resolve().parents[3] / "test-artifacts"
ALIAS = "/mlflow/api/2.0/mlflow/registered-models/alias"


@pytest.fixture(scope="module")
def site(tracking_server, build):
    """A server with one run that MLflow has; tokens by role; the model's versions by checkpoint."""
    server = tracking_server
    run = server.apply("seen", build.experiment("seen", seed="seen"))["run"]["run_id"]
    server.wait_run(run)
    search = "/mlflow/api/2.0/mlflow/model-versions/search"
    versions = lambda: server.http.get(search, params={"filter": "name='seen'"})  # noqa: E731
    build.until(lambda: len(versions().json().get("model_versions", [])) == 3, 60)
    server.run_id = run
    server.tokens = {role: token(server, role) for role in ("viewer", "editor", "inference")}
    server.versions = {
        next(t["value"] for t in v["tags"] if t["key"] == "checkpoint"): v["version"]
        for v in versions().json()["model_versions"]
    }
    return server


def token(server, role):
    """A token of a person called as the role is; made as the admin at the machine would."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "arena_runner.cli", "token", "--home", server.home]
    command += ["create", "--role", role, "--name", f"{role}-ada"]
    told = subprocess.run(command, env=server.environment(), capture_output=True, text=True, check=True)
    return told.stdout.split()[-1]


def as_(site, role):
    return {"Authorization": f"Bearer {site.tokens[role]}"}


def history(site, **query):
    return site.http.get("/api/v1/audit", params={"model": "seen", **query}).json()


def test_mlflow_itself_answers_nobody_who_does_not_know_its_secret(site):
    inside = mlflow_inside(site.home)
    port = httpx.URL(inside).port
    assert httpx.get(f"{inside}/health").status_code == 200
    for path in (
        "/health",
        "/",
        "/api/2.0/mlflow/experiments/search",
        "/ajax-api/2.0/mlflow/experiments/search",
    ):
        assert httpx.get(f"http://127.0.0.1:{port}{path}").status_code == 404
    pid = json.loads((site.home / "processes" / "mlflow.json").read_text())["pid"]
    secret = inside.rpartition("/")[2]
    for process in [pid, *_children(pid)]:
        assert secret.encode() not in Path(f"/proc/{process}/cmdline").read_bytes()
    logs = [site.home / "server.log", *(site.home / "logs").glob("*.log")]
    assert [(log.name, line) for log in logs for line in log.read_text().splitlines() if secret in line] == []


def _children(pid):
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_address_people_are_told_is_behind_the_login(site):
    url = site.run(site.run_id)["mlflow_url"]
    assert url.startswith(f"{str(site.http.base_url).rstrip('/')}/mlflow/#/experiments/")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_without_a_login_a_browser_is_sent_to_it_and_a_program_gets_401(site, headers):
    base = str(site.http.base_url)
    page = httpx.get(f"{base}/mlflow/", headers={**headers, "Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2Fmlflow%2F")
    assert httpx.get(f"{base}/mlflow/api/2.0/mlflow/experiments/search", headers=headers).status_code == 401


def test_a_token_for_inference_sees_nothing(site):
    answer = site.http.get("/mlflow/", headers=as_(site, "inference"))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_viewer_reads_runs_with_mlflows_own_client(site, monkeypatch, tmp_path):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", site.tokens["viewer"])
    client = MlflowClient(f"{str(site.http.base_url).rstrip('/')}/mlflow")
    experiment = client.get_experiment_by_name("arith")
    runs = client.search_runs([experiment.experiment_id], "tags.`arena.address` = 'experiment/seen'")
    member = next(run for run in runs if run.data.tags.get("arena.member") == "1")
    assert [p.value for p in client.get_metric_history(member.info.run_id, "reward/mean")]
    path = client.download_artifacts(
        member.info.run_id, "checkpoints/step_16/adapter_config.json", str(tmp_path)
    )
    assert Path(path).read_text() == "{}"


@pytest.mark.parametrize("role", ["viewer", "editor", "admin"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "api/2.0/mlflow/runs/create", {"experiment_id": "0"}),
        ("POST", "ajax-api/2.0/mlflow/experiments/create", {"name": "mine"}),
        ("DELETE", "api/2.0/mlflow/registered-models/delete", {"name": "seen"}),
        ("PUT", "api/2.0/mlflow-artifacts/artifacts/x", {}),
        ("POST", "graphql", {"query": "mutation { testMutation { output } }"}),
        ("POST", "api/2.0/mlflow/registered-models/alias", {"name": "seen", "alias": "best", "version": "1"}),
        ("POST", "api/2.0/mlflow/runs/set-tag", {"run_id": "1", "key": "arena.run", "value": "x"}),
    ],
)
def test_what_only_the_server_writes_is_refused_to_everybody(site, role, method, path, body):
    headers = as_(site, role) if role != "admin" else {}
    answer = site.http.request(method, f"/mlflow/{path}", json=body, headers=headers)
    assert answer.status_code == 403, answer.text
    assert answer.json()["code"] in {"read-only", "forbidden"}


def test_a_viewer_may_not_choose_and_nothing_is_recorded(site):
    before = history(site)
    body = {"name": "seen", "alias": "champion", "version": "1"}
    answer = site.http.post(ALIAS, json=body, headers=as_(site, "viewer"))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert history(site) == before


def test_every_change_of_an_alias_is_recorded_with_who_and_what_it_was(site):
    headers = {**as_(site, "editor"), "X-Request-Id": "choose-1"}
    for version in ("1", "2"):
        body = {"name": "seen", "alias": "candidate", "version": version}
        assert site.http.post(ALIAS, json=body, headers=headers).status_code == 200
    gone = site.http.request("DELETE", ALIAS, json={"name": "seen", "alias": "candidate"}, headers=headers)
    assert gone.status_code == 200
    told = [
        (e["old"], e["new"], e["by"], e["request_id"], e["outcome"]) for e in history(site, alias="candidate")
    ]
    who = ("editor-ada", "choose-1", "done")
    assert told == [("2", None, *who), ("1", "2", *who), (None, "1", *who)]


def test_a_change_that_mlflow_refuses_is_recorded_as_refused(site):
    body = {"name": "seen", "alias": "wild", "version": "99"}
    assert site.http.post(ALIAS, json=body, headers=as_(site, "editor")).status_code == 404
    (entry,) = history(site, alias="wild")
    assert (entry["new"], entry["outcome"]) == ("99", "refused")


def test_a_change_past_the_server_is_noticed_without_a_name(site, build):
    from mlflow import MlflowClient

    MlflowClient(mlflow_inside(site.home)).set_registered_model_alias("seen", "backdoor", "1")
    (entry,) = build.until(lambda: history(site, alias="backdoor"))
    assert (entry["old"], entry["new"], entry["by"]) == (None, "1", None)


def test_the_servers_own_aliases_are_recorded_as_its_own(site, build):
    entries = build.until(lambda: history(site, alias="best"))
    assert {entry["by"] for entry in entries} == {"server"}


def test_the_plan_is_told_who_set_the_alias(site, build):
    body = {"name": "seen", "alias": "toplan", "version": site.versions["step_8/m1"]}
    assert site.http.post(ALIAS, json=body, headers=as_(site, "editor")).status_code == 200
    site.apply("seen-chat", build.deployment("seen", checkpoint="@toplan"), kind="deployment")
    answer = site.http.get("/api/v1/state", params={"stack": "team"}, headers={"Cache-Control": "no-cache"})
    found = next(r for r in answer.json()["resources"] if r["name"] == "seen-chat")["deployment"]["choice"]
    assert (found["by"], found["checkpoint"]) == ("editor-ada", "step_8/m1")
    site.retire("deployment/seen-chat")


def test_what_training_code_wrote_cannot_act_as_a_page_of_ours(site):
    found = site.http.get("/mlflow/get-artifact", params={"run_uuid": "nope", "path": "x.html"})
    assert found.headers["content-security-policy"].startswith("sandbox")
    assert found.headers["x-content-type-options"] == "nosniff"


def test_other_sites_cannot_use_a_logged_in_browser(site):
    with httpx.Client(base_url=str(site.http.base_url)) as browser:
        log_in_by_form(browser, site.tokens["editor"])
        body = {"name": "seen", "alias": "forged", "version": "1"}
        for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
            assert browser.post(ALIAS, json=body, headers=headers).status_code == 403
        assert browser.post(ALIAS, json=body, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert [entry["by"] for entry in history(site, alias="forged")] == ["editor-ada"]


def log_in_by_form(browser, text):
    form = browser.get("/login").text
    csrf = form.partition('name="csrf" value="')[2].partition('"')[0]
    assert browser.post("/login", data={"token": text, "csrf": csrf}).status_code == 303


@pytest.fixture
def page():
    PICTURES.mkdir(exist_ok=True)
    with chromium_page(viewport={"width": 1500, "height": 1000}) as page:
        yield page


def log_in(page, site, role):
    """Sent from a page of MLflow to the login and back."""
    page.goto(f"{str(site.http.base_url).rstrip('/')}/mlflow/")
    page.get_by_label("Token").fill(site.tokens[role])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/mlflow/**")


def choose(page, site, alias):
    """Give the first version an alias, the way MLflow's own page does it."""
    page.goto(f"{str(site.http.base_url).rstrip('/')}/mlflow/#/models/seen/versions/1")
    page.locator("button[data-component-id*=aliaseditor]").first.click(timeout=60_000)
    dialog = page.get_by_role("dialog").filter(has_text="lias")
    dialog.get_by_role("combobox").fill(alias)
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Save aliases").click()


@pytest.mark.browser
def test_a_person_logs_in_sees_the_runs_and_chooses_the_champion(page, site, build):
    log_in(page, site, "editor")
    page.goto(site.run(site.run_id)["mlflow_url"].partition("/runs/")[0] + "/runs")
    page.get_by_text("seen v1", exact=True).first.wait_for(timeout=60_000)
    page.screenshot(path=PICTURES / "mlflow-behind-login.png")
    choose(page, site, "champion")
    page.get_by_text("@ champion").first.wait_for(timeout=30_000)
    page.screenshot(path=PICTURES / "mlflow-champion.png")
    # the page shows the alias before the server has answered
    told = lambda: [(e["new"], e["by"], e["outcome"]) for e in history(site, alias="champion")]  # noqa: E731
    assert build.until(lambda: ("1", "editor-ada", "done") in told())


@pytest.mark.browser
def test_a_viewer_who_tries_to_choose_is_told_why_not(page, site):
    log_in(page, site, "viewer")
    choose(page, site, "upstart")
    page.get_by_text("this needs a token with role editor").first.wait_for(timeout=30_000)
    page.screenshot(path=PICTURES / "mlflow-refused.png")
    assert history(site, alias="upstart") == []
