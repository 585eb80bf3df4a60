"""Events into a real MLflow: every step once, members as child runs, checkpoints as registered versions."""

import json
import os
import signal
from pathlib import Path

import pytest
from mlflow_inside import mlflow_inside

from arena_gitops.app import Consent, World, apply, plan, wait
from arena_gitops.apply.events import StepStarted
from arena_gitops.apply.wait import Patience, Until
from arena_gitops.errors import StaleError
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import DeploymentSpec, Owner
from arena_gitops.state import DesiredResource, DesiredState
from arena_runner.server.ledger import Ledger, NewVersion
from arena_runner.server.points import Point


@pytest.fixture(scope="module")
def tracked(tracking_server, build):
    """A run of three iterations whose worker is killed in the second."""
    server = tracking_server
    body = build.experiment("exp", steps=24, die_in=[[0, 2]])
    looked_at = {"address": "experiment/exp", "manifest": {"algorithm": {"name": "GRPO"}}, "inputs": {}}
    assert tracking_server.http.post("/api/v1/checks", json=looked_at).status_code == 200
    run_id = server.apply("exp", body)["run"]["run_id"]
    server.wait_run(run_id, "completed")
    build.until(lambda: server.run(run_id)["mlflow_url"], 60)
    return server, run_id


@pytest.fixture(scope="module")
def mlflow(tracked, build):
    """A client of that MLflow, once it has everything."""
    from mlflow import MlflowClient

    server, _ = tracked
    client = MlflowClient(mlflow_inside(server.home))
    build.until(lambda: parent(client).info.status == "FINISHED", 60)
    build.until(lambda: len(client.search_model_versions("name = 'exp'")) == 4)
    build.until(lambda: client.get_registered_model("exp").aliases)
    return client


def parent(client):
    experiment = client.get_experiment_by_name("arith")
    wanted = "tags.`arena.kind` = 'run' and tags.`arena.address` = 'experiment/exp'"
    return client.search_runs([experiment.experiment_id], wanted)[0]


def members(client):
    experiment = client.get_experiment_by_name("arith")
    wanted = "tags.`arena.kind` = 'member' and tags.`arena.address` = 'experiment/exp'"
    found = client.search_runs([experiment.experiment_id], wanted)
    return {run.data.tags["arena.member"]: run for run in found}


def test_the_api_is_ready_long_before_mlflow(tracking_server):
    """Which alone needs as many seconds of a processor as the server has to begin in."""
    parts = {part["name"]: part for part in tracking_server.at_first["parts"]}
    assert (parts["database"]["ok"], parts["mlflow"]["ok"]) == (True, False)


def test_members_are_child_runs_of_one_parent_run(mlflow):
    parents = {run.data.tags["mlflow.parentRunId"] for run in members(mlflow).values()}
    assert (parents, sorted(members(mlflow))) == ({parent(mlflow).info.run_id}, ["0", "1"])


def test_every_step_is_there_once_although_the_second_segment_repeated_one(tracked, mlflow):
    server, run_id = tracked
    repeated = [
        e for e in server.events(run_id) if e["event"]["type"] == "metrics" and e["event"]["step"] == 16
    ]
    assert len(repeated) == 4, "both segments reported iteration 2 of both members"
    history = mlflow.get_metric_history(members(mlflow)["0"].info.run_id, "reward/mean")
    assert [point.step for point in history] == [8, 16, 24]


def test_of_a_repeated_step_the_first_report_is_kept(mlflow):
    history = mlflow.get_metric_history(members(mlflow)["0"].info.run_id, "segment")
    assert [(point.step, point.value) for point in history] == [(8, 0.0), (16, 0.0), (24, 1.0)]


def test_registered_are_the_fittest_at_every_evaluation_and_all_members_at_the_end(mlflow):
    versions = mlflow.search_model_versions("name = 'exp'")
    assert sorted(v.tags["checkpoint"] for v in versions) == [
        "step_16/m1",
        "step_24/m0",
        "step_24/m1",
        "step_8/m1",
    ]


def test_the_alias_best_points_to_the_fittest(mlflow, build):
    """It is set once the versions are there, one after the other."""
    build.until(lambda: mlflow.get_model_version_by_alias("exp", "best").tags["checkpoint"] == "step_24/m1")
    version = mlflow.get_model_version_by_alias("exp", "best")
    assert (version.tags["checkpoint"], version.tags["run_version"]) == ("step_24/m1", "1")


def test_a_checkpoints_files_can_be_listed_and_fetched(mlflow, tmp_path):
    run = members(mlflow)["1"].info.run_id
    path = mlflow.download_artifacts(run, "checkpoints/step_24/adapter_config.json", str(tmp_path))
    assert Path(path).read_text() == "{}"


def test_provenance_lineage_curves_and_the_report_of_checks_are_there(mlflow, tmp_path):
    run = parent(mlflow)
    assert {"arena.fingerprint", "arena.address", "arena.manifest", "arena.state"} <= set(run.data.tags)
    assert {f.path for f in mlflow.list_artifacts(run.info.run_id)} >= {"lineage.json", "population.png"}
    report = mlflow.download_artifacts(run.info.run_id, "checks.md", str(tmp_path))
    assert Path(report).read_text().startswith("# Checks of experiment/exp\n")
    assert "lr" in members(mlflow)["0"].data.tags["arena.lineage"]


def test_the_platform_keeps_best_and_serving_and_a_persons_alias_is_served_once_applied(
    tracked, mlflow, build
):
    server, _ = tracked
    pinned = {"name": "chat", "kind": "deployment"}
    waiting = server.apply(body=build.deployment("exp", checkpoint="@champion"), **pinned)
    told = build.until(
        lambda: "champion" in (m := server.resource("deployment/chat")["deployment"]["message"]) and m
    )
    assert told.startswith("waiting for alias 'champion' on model exp: set it at http://127.0.0.1:")
    version = next(
        v for v in mlflow.search_model_versions("name = 'exp'") if v.tags["checkpoint"] == "step_16/m1"
    )
    mlflow.set_registered_model_alias("exp", "champion", version.version)
    mlflow.set_registered_model_alias("exp", "best", version.version)
    server.apply(body=build.deployment("exp", checkpoint="@champion"), etag=waiting["etag"], **pinned)
    served = build.until(
        lambda: (d := server.resource("deployment/chat")["deployment"])["state"] == "serving" and d
    )
    assert served["checkpoint"] == "step_16/m1"
    build.until(lambda: mlflow.get_registered_model("exp").aliases.get("serving") == version.version)
    build.until(lambda: mlflow.get_model_version_by_alias("exp", "best").tags["checkpoint"] == "step_24/m1")
    assert mlflow.get_registered_model("exp").aliases["champion"] == version.version


def test_a_plan_shows_a_moved_alias_and_only_an_apply_moves_its_traffic(tracked, mlflow, build):
    """The choice is made with MLflow's own client; plan and apply are those of the command line."""
    server, _ = tracked
    versions = {v.tags["checkpoint"]: v.version for v in mlflow.search_model_versions("name = 'exp'")}
    platform = HttpPlatform(str(server.http.base_url), server.announcement()["token"])
    world, desired = World(platform), only_a_deployment("chosen", "exp", "@candidate")
    look = lambda: server.resource("deployment/chosen", stack="choosers")["deployment"]  # noqa: E731
    planned = lambda: plan(world, desired, target="local")  # noqa: E731

    mlflow.set_registered_model_alias("exp", "candidate", versions["step_16/m1"])
    apply(world, planned(), desired, Consent.APPROVED)
    build.until(lambda: look()["state"] == "serving")
    assert not planned().has_changes

    mlflow.set_registered_model_alias("exp", "candidate", versions["step_24/m0"])
    (change,) = planned().changes
    assert (change.action, change.reason) == ("promote", "alias_moved")
    assert change.message.startswith("@candidate is version ")
    assert (look()["revision"], look()["checkpoint"]) == (1, "step_16/m1"), "looking moves nothing"

    stale = planned()
    mlflow.set_registered_model_alias("exp", "candidate", versions["step_24/m1"])
    with pytest.raises(StaleError, match="points elsewhere by now"):
        apply(world, stale, desired, Consent.APPROVED)

    point_to = lambda name: mlflow.set_registered_model_alias("exp", "candidate", versions[name])  # noqa: E731
    late = lambda event: point_to("step_24/m0") if isinstance(event, StepStarted) else None  # noqa: E731
    with pytest.raises(StaleError, match=r"0 of 1 changes were made[^$]*points to version"):
        apply(World(platform, listener=late), planned(), desired, Consent.APPROVED)
    assert (look()["revision"], look()["checkpoint"]) == (1, "step_16/m1")
    point_to("step_24/m1")
    now = planned()
    apply(world, now, desired, Consent.APPROVED)
    wait(world, now, Patience(Until.COMPLETE, timeout_s=60))
    assert (look()["revision"], look()["checkpoint"]) == (2, "step_24/m1")
    assert not planned().has_changes
    platform.close()


def only_a_deployment(name, experiment, checkpoint):
    """A repository with one file, of a stack of its own."""
    spec = DeploymentSpec(experiment=experiment, checkpoint=checkpoint).model_dump(mode="json")
    address = Address("deployment", name)
    resource = DesiredResource(address, spec, fingerprint(spec, {}))
    return DesiredState(owner=Owner(stack="choosers"), resources={address: resource})


@pytest.mark.one_database
def test_a_run_completes_while_mlflow_is_dead_and_mlflow_learns_everything_later(tracked, mlflow, build):
    server, _ = tracked
    ready = lambda: server.http.get("/readyz").json()["state"] == "ready"  # noqa: E731
    os.kill(json.loads((server.home / "processes" / "mlflow.json").read_text())["pid"], signal.SIGKILL)
    run_id = server.apply("late", build.experiment("late", seed="late"))["run"]["run_id"]
    assert server.wait_run(run_id)["state"] == "completed"
    build.until(lambda: not ready())
    build.until(ready, 60)  # on its old port, although only its parent process was killed
    versions = build.until(lambda: mlflow.search_model_versions("name = 'late'"), 60)
    build.until(lambda: len(mlflow.search_model_versions("name = 'late'")) == 3)
    histories = [mlflow.get_metric_history(v.run_id, "reward/mean") for v in versions]
    assert [[point.step for point in history] for history in histories] == [[8, 16]] * len(versions)


def test_everything_written_twice_is_there_once(tracked, mlflow):
    """A crash between MLflow's answer and our own mark repeats the call."""
    server, _ = tracked
    ledger = Ledger(mlflow_inside(server.home))
    experiment, key = ledger.experiment("twice"), {"arena.run": "r_twice"}
    runs = {ledger.open_run(experiment, "twice v1", key, key) for _ in range(2)}
    assert len(runs) == 1
    (run,) = runs
    for _ in range(2):
        ledger.log_params(run, {"algorithm.lr": "0.1"})
        ledger.log_points(run, [Point(0, "loss", step, step / 10, 1000 + step) for step in (1, 2)])
    assert [point.step for point in mlflow.get_metric_history(run, "loss")] == [1, 2]
    new = NewVersion("twice", run, "checkpoints/step_1", {**key, "fitness": "0.5"}, "step_1/m0")
    assert [ledger.register(new, key) for _ in range(2)] == ["1", "1"]
