"""Back to an earlier revision, held in sight until somebody ends it."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def twice(shared_server, build, request):
    """A deployment that has served r1 and serves r2; and its name."""
    server, name = shared_server, request.function.__name__.replace("_", "-")[-40:].strip("-")
    first = server.apply(name, build.experiment(name, seed=f"{name}1"))
    server.apply(name, build.deployment(name), kind="deployment")
    until_serving(server, build, name, 1)
    server.apply(name, build.experiment(name, steps=24, seed=f"{name}2"), etag=first["etag"])
    until_serving(server, build, name, 2)
    return server, name


def status(server, name):
    return server.resource(f"deployment/{name}")["deployment"]


def until_serving(server, build, name, revision, state="serving"):
    wanted = (state, revision)
    return build.until(lambda: (d := status(server, name)) and (d["state"], d["revision"]) == wanted and d)


def post(server, name, verb, **body):
    owner = {"stack": "team", "namespace": "main"}
    return server.http.post(f"/api/v1/deployments/{name}/{verb}", json={"owner": owner, **body})


def says(server, name):
    answer = server.http.post(f"/i/{name}/generate", json={"prompts": ["hi"]})
    return answer.json()["results"][0]["completion"]


def revisions(server, name):
    return [
        (r["number"], r["state"], r["checkpoint"])
        for r in server.http.get(f"/api/v1/deployments/{name}/revisions").json()
    ]


def test_a_rollback_serves_the_revision_before_and_is_held(twice, build):
    server, name = twice
    answer = post(server, name, "rollback")
    assert answer.status_code == 200, answer.text
    assert answer.json()["deployment"]["revision"] == 1  # it was there and proved: it serves by now
    held = until_serving(server, build, name, 1, "held")
    assert held["hold"].items() >= {"revision": 1, "wanted": 2}.items()
    assert held["message"].startswith("held at r1, instead of r2: rolled back by ")
    assert says(server, name).startswith(f"{name}.r1 ")
    assert revisions(server, name) == [(1, "serving", "step_16/m1"), (2, "superseded", "step_24/m1")]


def test_a_hold_outlasts_other_looks_and_ends_with_resume(twice, build):
    server, name = twice
    post(server, name, "rollback", to=1)
    until_serving(server, build, name, 1, "held")
    assert post(server, name, "resume").status_code == 200
    after = until_serving(server, build, name, 3)
    assert (after["hold"], after["checkpoint"]) == (None, "step_24/m1")


def test_another_content_of_the_file_ends_a_hold_and_a_description_does_not(twice, build):
    server, name = twice
    post(server, name, "rollback")
    until_serving(server, build, name, 1, "held")
    etag = server.resource(f"deployment/{name}")["etag"]
    body = build.deployment(name)
    described = body.model_copy(update={"spec": {**body.spec, "description": "newer"}})
    etag = server.apply(name, described, kind="deployment", etag=etag)["etag"]
    assert status(server, name)["hold"]["revision"] == 1
    server.apply(name, build.deployment(name, checkpoint="step_24/m0"), kind="deployment", etag=etag)
    assert until_serving(server, build, name, 3)["checkpoint"] == "step_24/m0"


def test_only_what_has_served_can_be_gone_back_to(twice):
    server, name = twice
    answer = post(server, name, "rollback", to=7)
    assert (answer.status_code, answer.json()["code"]) == (409, "no-such-revision")
    assert answer.json()["message"].endswith("has never served; these have: r1, r2")


def test_a_rollback_that_cannot_be_probed_leaves_the_newer_revision_serving(twice, build):
    server, name = twice
    (server.home / "fail_probe").touch()
    try:
        post(server, name, "rollback")
        refused = build.until(lambda: (d := status(server, name))["refused"] and d)
    finally:
        (server.home / "fail_probe").unlink()
    assert (refused["state"], refused["revision"]) == ("held", 2)
    assert says(server, name).startswith(f"{name}.r2 ")


def test_another_stack_may_not_roll_back(twice):
    server, name = twice
    body = {"owner": {"stack": "others", "namespace": "main"}}
    answer = server.http.post(f"/api/v1/deployments/{name}/rollback", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "owned-by-other")


def test_a_deployment_that_does_not_exist_is_404(shared_server):
    assert post(shared_server, "nobody", "rollback").status_code == 404
    assert shared_server.http.get("/api/v1/deployments/nobody/revisions").status_code == 404


def arena(server, folder, *args):
    """The command line in a repository of the stack `team`, against this server."""
    (folder / "arena.yaml").write_text("name: team\n")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    url = str(server.http.base_url)
    environ = {**os.environ, "ARENA_BASE_URL": url, "ARENA_API_KEY": server.announcement()["token"]}
    command = [sys.executable, "-m", "arena_gitops.cli", "-C", str(folder), *args]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_the_commands_roll_back_show_the_hold_and_resume(twice, build, tmp_path):
    server, name = twice
    done = arena(server, tmp_path, "rollback", f"deployment/{name}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"deployment/{name}: held step_16/m1 of run ")
    assert "revision 1" in done.stdout
    assert "held at r1, instead of r2" in arena(server, tmp_path, "status").stdout
    assert arena(server, tmp_path, "resume", f"deployment/{name}").returncode == 0
    until_serving(server, build, name, 3)
    wrong = arena(server, tmp_path, "rollback", name)
    assert (wrong.returncode, "expected deployment/NAME" in wrong.stderr) == (64, True)


def test_a_rollback_whose_probe_fails_is_exit_7(twice, tmp_path):
    server, name = twice
    (server.home / "fail_probe").touch()
    try:
        done = arena(server, tmp_path, "rollback", f"deployment/{name}")
    finally:
        (server.home / "fail_probe").unlink()
    assert done.returncode == 7, done.stdout
    assert "the rollback failed; what served goes on serving" in done.stderr


def test_a_run_that_was_stopped_goes_on_with_the_same_command(shared_server, build, tmp_path):
    server, name = shared_server, "held-run"
    run_id = server.apply(name, build.experiment(name, steps=48, seed=name, pause_s=0.2))["run"]["run_id"]
    server.http.post(f"/api/v1/runs/{run_id}/stop")
    server.wait_run(run_id, "stopped")
    told = arena(server, tmp_path, "resume", f"experiment/{name}")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"experiment/{name}: queued at step ")
    assert server.wait_run(run_id)["state"] == "completed"
    over = arena(server, tmp_path, "resume", f"experiment/{name}")
    assert (over.returncode, "is completed: there is no hold to end" in over.stderr) == (1, True)
    wrong = arena(server, tmp_path, "resume", f"reward/{name}")
    assert (wrong.returncode, "expected experiment/NAME or deployment/NAME" in wrong.stderr) == (64, True)
