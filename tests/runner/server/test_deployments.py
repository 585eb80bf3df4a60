"""From a completed run to a revision that serves: gates, probes, restarts, failures that change nothing."""

import os
import signal


def serving(server, name="chat"):
    return server.resource(f"deployment/{name}")["deployment"]


def wait_for(server, build, state, name="chat", timeout_s=30):
    return build.until(lambda: (d := serving(server, name))["state"] == state and d, timeout_s)


def says(server, name="chat"):
    answer = server.http.post(f"/i/{name}/generate", json={"prompts": ["hi"]})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][0]["completion"]


def test_best_is_promoted_when_the_run_ends(server, build):
    server.apply("exp", build.experiment(steps=16, pause_s=0.5))
    server.apply("chat", build.deployment(), kind="deployment")
    pending = wait_for(server, build, "pending")
    assert (
        "promotes best when run"
        in build.until(lambda: serving(server)["message"] != "not looked at yet" and serving(server))[
            "message"
        ]
    )
    assert (pending["revision"], pending["url"]) == (0, None)
    done = wait_for(server, build, "serving")
    assert (done["revision"], done["checkpoint"]) == (1, "step_16/m1")
    assert says(server) == 'chat.r1 says {"member": 1, "step": 16}'


def test_a_gate_that_is_not_reached_holds_with_the_figures(server, build):
    server.apply("exp", build.experiment())
    gate = {"metric": "eval/reward", "min": 0.6}
    server.apply("chat", build.deployment(gate=gate), kind="deployment")
    held = wait_for(server, build, "held")
    assert held["message"] == "step_16/m1: eval/reward 0.21 is below the gate's 0.6"


def test_a_checkpoint_that_does_not_exist_holds_and_lists_those_that_do(server, build):
    server.apply("exp", build.experiment())
    server.apply("chat", build.deployment(checkpoint="step_4"), kind="deployment")
    held = wait_for(server, build, "held")
    assert held["message"].startswith("no checkpoint step_4; there are: step_16/m0 (fitness 0.2), step_16/m1")


def test_a_pinned_member_is_served(server, build):
    server.apply("exp", build.experiment())
    server.apply("chat", build.deployment(checkpoint="step_16/m0"), kind="deployment")
    assert wait_for(server, build, "serving")["checkpoint"] == "step_16/m0"


def test_an_alias_waits_in_words_while_mlflow_is_unknown(server, build):
    server.apply("exp", build.experiment())
    server.apply("chat", build.deployment(checkpoint="@champion"), kind="deployment")
    message = "alias 'champion' is unknown: MLflow did not answer; apply again"
    assert build.until(lambda: serving(server)["message"] == message)


def test_a_failed_probe_leaves_the_old_revision_serving_and_is_not_tried_again(server, build):
    first = server.apply("exp", build.experiment())
    server.apply("chat", build.deployment(), kind="deployment")
    wait_for(server, build, "serving")
    (server.home / "fail_probe").touch()
    server.apply("exp", build.experiment(steps=24, seed=2), etag=first["etag"])
    held = wait_for(server, build, "held")
    assert held["revision"] == 1
    assert held["message"].endswith("out of luck; r1 step_16/m1 keeps serving")
    (server.home / "fail_probe").unlink()
    assert says(server).startswith("chat.r1")
    assert serving(server)["state"] == "held"


def test_a_new_version_takes_over_only_after_its_run(server, build):
    first = server.apply("exp", build.experiment())
    server.apply("chat", build.deployment(), kind="deployment")
    wait_for(server, build, "serving")
    server.apply("exp", build.experiment(steps=24, seed=2, pause_s=0.4), etag=first["etag"])
    waiting = build.until(lambda: (d := serving(server))["message"] and d)
    assert (waiting["state"], waiting["revision"]) == ("serving", 1)
    assert build.until(lambda: serving(server)["revision"] == 2)
    assert says(server) == 'chat.r2 says {"member": 1, "step": 24}'


def test_a_model_server_that_dies_is_started_again_with_its_adapters(server, build):
    server.apply("exp", build.experiment())
    server.apply("chat", build.deployment(), kind="deployment")
    wait_for(server, build, "serving")
    record = next((server.home / "processes").glob("model-*.json"))
    import json

    os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)

    def speaks():
        answer = server.http.post("/i/chat/generate", json={"prompts": ["hi"]})
        return answer.status_code == 200 and answer.json()["results"][0]["completion"].startswith("chat.r1")

    assert build.until(speaks, 30)


def test_a_killed_server_serves_again_without_a_new_revision(server, build):
    server.apply("exp", build.experiment())
    server.apply("chat", build.deployment(), kind="deployment")
    wait_for(server, build, "serving")
    server.stop(signal.SIGKILL)
    server.start()
    assert wait_for(server, build, "serving")["revision"] == 1
    assert says(server).startswith("chat.r1")


def test_a_base_model_that_does_not_start_is_said(server, build):
    body = build.experiment()
    spec = {**body.spec, "model": {"id": "missing-model"}}
    server.apply("exp", body.model_copy(update={"spec": spec}))
    server.apply("chat", build.deployment(), kind="deployment")
    held = wait_for(server, build, "held", timeout_s=60)
    assert held["message"].endswith("does not start: no such model: missing-model")


def test_a_retired_deployment_answers_no_more_and_returns_with_its_file(server, build):
    server.apply("exp", build.experiment())
    document = server.apply("chat", build.deployment(), kind="deployment")
    wait_for(server, build, "serving")
    params = {"stack": "team", "namespace": "main"}
    gone = server.http.delete(
        "/api/v1/resources/deployment/chat", params=params, headers={"If-Match": document["etag"]}
    )
    assert gone.status_code == 204
    assert server.http.post("/i/chat/generate", json={"prompts": ["hi"]}).status_code == 404
    server.apply("chat", build.deployment(), kind="deployment")
    assert wait_for(server, build, "serving")["revision"] == 1
    assert build.until(
        lambda: server.http.post("/i/chat/generate", json={"prompts": ["hi"]}).status_code == 200
    )
