"""From a completed run to a revision that serves: gates, probes, restarts, failures that change nothing."""

import json
import os
import signal

import pytest


def serving(server, name="chat"):
    return server.resource(f"deployment/{name}")["deployment"]


def wait_for(server, build, state, name="chat", timeout_s=60):
    return build.until(lambda: (d := serving(server, name))["state"] == state and d, timeout_s)


def apply_both(server, build, name, body=None, **spec):
    """An experiment and a deployment of one name."""
    document = server.apply(name, body or build.experiment(name, seed=name))
    return document, server.apply(name, build.deployment(name, **spec), kind="deployment")


def says(server, name="chat"):
    answer = server.http.post(f"/i/{name}/generate", json={"prompts": ["hi"]})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][0]["completion"]


def test_best_is_promoted_when_the_run_ends(shared_server, build):
    server = shared_server
    apply_both(server, build, "waits", build.experiment("waits", seed="waits", pause_s=0.5))
    waiting = build.until(lambda: (d := serving(server, "waits"))["message"] != "not looked at yet" and d)
    assert "promotes best when run" in waiting["message"]
    assert (waiting["state"], waiting["revision"], waiting["url"]) == ("pending", 0, None)
    done = wait_for(server, build, "serving", "waits")
    assert (done["revision"], done["checkpoint"]) == (1, "step_16/m1")
    assert says(server, "waits") == 'waits.r1 says {"member": 1, "step": 16}'


def test_best_may_be_the_lowest_of_another_figure(shared_server, build):
    apply_both(shared_server, build, "lowest", best={"metric": "correct", "mode": "min"})
    assert (
        wait_for(shared_server, build, "serving", "lowest")["checkpoint"] == "step_8/m1"
    )  # of the exports; of step 8 only the fittest is one


def test_best_by_a_figure_nobody_measured_holds_and_names_those_there_are(shared_server, build):
    apply_both(shared_server, build, "charming", best={"metric": "eval/charm"})
    held = wait_for(shared_server, build, "held", "charming")
    assert held["message"] == (
        "no checkpoint has eval/charm, which best asks for; evaluations tell correct, eval/reward, fitness"
    )


def test_a_gate_that_is_not_reached_holds_with_the_figures(shared_server, build):
    apply_both(shared_server, build, "gated", gate={"metric": "eval/reward", "min": 0.6})
    held = wait_for(shared_server, build, "held", "gated")
    assert held["message"] == "step_16/m1: eval/reward 0.21 is below the gate's 0.6"


def test_a_gate_on_a_figure_nobody_measured_holds(shared_server, build):
    apply_both(shared_server, build, "unmeasured", gate={"metric": "eval/charm", "min": 0.1})
    held = wait_for(shared_server, build, "held", "unmeasured")
    assert held["message"] == "step_16/m1 has no eval/charm, which the gate asks for"


def test_a_checkpoint_that_does_not_exist_holds_and_lists_those_that_do(shared_server, build):
    apply_both(shared_server, build, "early", checkpoint="step_4")
    held = wait_for(shared_server, build, "held", "early")
    assert held["message"].startswith("no checkpoint step_4; there are: step_16/m0 (fitness 0.2), step_16/m1")


def test_a_failed_run_holds_and_says_its_reason(shared_server, build):
    finish = {"state": "failed", "reason": "user_code", "message": "reward.py:3: boom"}
    apply_both(shared_server, build, "failing", build.experiment("failing", seed="failing", finish=finish))
    held = wait_for(shared_server, build, "held", "failing")
    assert held["message"].endswith("of experiment/failing v1 is failed (user_code): reward.py:3: boom")


def test_a_pinned_member_is_served(shared_server, build):
    apply_both(shared_server, build, "pinned", checkpoint="step_16/m0")
    assert wait_for(shared_server, build, "serving", "pinned")["checkpoint"] == "step_16/m0"


def test_an_alias_waits_in_words_while_mlflow_is_unknown(shared_server, build):
    apply_both(shared_server, build, "aliased", checkpoint="@champion")
    message = "alias 'champion' is unknown: MLflow did not answer; apply again"
    assert build.until(lambda: serving(shared_server, "aliased")["message"] == message)


def test_a_new_version_takes_over_only_after_its_run(shared_server, build):
    server = shared_server
    first, _ = apply_both(server, build, "newer")
    wait_for(server, build, "serving", "newer")
    second = build.experiment("newer", steps=24, seed="newer2", pause_s=0.4)
    server.apply("newer", second, etag=first["etag"])
    waiting = build.until(lambda: (d := serving(server, "newer"))["message"] and d)
    assert (waiting["state"], waiting["revision"]) == ("serving", 1)
    assert build.until(lambda: serving(server, "newer")["revision"] == 2)
    assert says(server, "newer") == 'newer.r2 says {"member": 1, "step": 24}'


def test_a_run_that_is_not_better_by_min_delta_leaves_the_old_one_serving(shared_server, build):
    server = shared_server
    gate = {"metric": "eval/reward", "min_delta": 0.05}
    first, _ = apply_both(server, build, "delta", gate=gate)
    wait_for(server, build, "serving", "delta")
    server.apply("delta", build.experiment("delta", seed="delta2"), etag=first["etag"])
    held = wait_for(server, build, "held", "delta")
    assert held["message"].endswith("is not better by 0.05 than 0.21 of step_16/m1, which serves")
    assert says(server, "delta").startswith("delta.r1")


def test_a_revert_trains_nothing_and_serves_the_older_run_although_it_scored_lower(shared_server, build):
    server = shared_server
    gate = {"metric": "eval/reward", "min": 0.1, "min_delta": 0.05}
    first, _ = apply_both(server, build, "reverts", gate=gate)
    wait_for(server, build, "serving", "reverts")
    second = server.apply("reverts", build.experiment("reverts", steps=24, seed="better"), etag=first["etag"])
    build.until(lambda: serving(server, "reverts")["revision"] == 2)
    runs = len(server.state()["runs"])
    back = server.apply("reverts", build.experiment("reverts", seed="reverts"), etag=second["etag"])
    assert back["run"]["run_id"] == first["run"]["run_id"]
    done = build.until(lambda: (d := serving(server, "reverts"))["revision"] == 3 and d)
    assert (done["state"], done["checkpoint"], done["hold"]) == ("serving", "step_16/m1", None)
    assert len(server.state()["runs"]) == runs
    assert says(server, "reverts").startswith("reverts.r1 ")  # the adapter that was there and proved already


@pytest.mark.one_database
def test_a_base_model_that_does_not_start_is_said(shared_server, build):
    body = build.experiment("modelless", seed="modelless")
    spec = {**body.spec, "model": {"id": "missing-model"}}
    apply_both(shared_server, build, "modelless", body.model_copy(update={"spec": spec}))
    held = wait_for(shared_server, build, "held", "modelless", timeout_s=60)
    assert held["message"].endswith("does not start: no such model: missing-model")


def test_a_retired_deployment_answers_no_more_and_returns_with_its_file(shared_server, build):
    server = shared_server
    _, document = apply_both(server, build, "returns")
    wait_for(server, build, "serving", "returns")
    gone = server.retire("deployment/returns", document["etag"])
    assert gone.status_code == 204
    assert server.http.post("/i/returns/generate", json={"prompts": ["hi"]}).status_code == 404
    server.apply("returns", build.deployment("returns"), kind="deployment")
    assert wait_for(server, build, "serving", "returns")["revision"] == 1
    assert says(server, "returns").startswith("returns.r1")  # at once: its adapter was loaded again before


def test_a_failed_probe_leaves_the_old_revision_serving_and_is_not_tried_again(server, build):
    first, _ = apply_both(server, build, "chat")
    wait_for(server, build, "serving")
    (server.home / "fail_probe").touch()
    server.apply("chat", build.experiment("chat", steps=24, seed=2), etag=first["etag"])
    held = wait_for(server, build, "held")
    assert held["revision"] == 1
    assert held["message"].endswith("out of luck; r1 step_16/m1 keeps serving")
    (server.home / "fail_probe").unlink()
    assert says(server).startswith("chat.r1")
    assert serving(server)["state"] == "held"


def test_a_model_server_that_dies_is_started_again_with_its_adapters(server, build):
    apply_both(server, build, "chat")
    wait_for(server, build, "serving")
    record = next((server.home / "processes").glob("model-*.json"))
    os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)

    def speaks():
        answer = server.http.post("/i/chat/generate", json={"prompts": ["hi"]})
        return answer.status_code == 200 and answer.json()["results"][0]["completion"].startswith("chat.r1")

    assert build.until(speaks)


def test_a_killed_server_serves_again_with_the_same_model_server_and_revision(server, build):
    apply_both(server, build, "chat")
    wait_for(server, build, "serving")
    record = next((server.home / "processes").glob("model-*.json"))
    pid = json.loads(record.read_text())["pid"]
    server.stop(signal.SIGKILL)
    server.start()
    assert wait_for(server, build, "serving")["revision"] == 1
    assert build.until(lambda: says(server).startswith("chat.r1"))
    assert json.loads(record.read_text())["pid"] == pid
