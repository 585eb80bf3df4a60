"""`arena-runner train`: the same job without a server."""

import json

import pytest
from click.testing import CliRunner

from arena_runner.cli import main

MANIFEST = """
algorithm: {{name: GRPO, batch_size: 2, group_size: 4, lr: 0.01, max_output_tokens: 8, {algorithm}}}
environment: {{env_type: rollout}}
training: {{max_steps: {steps}, evo_steps: 2, pop_size: 2, hpo: true, eval_rows: 4, test_rows: 8}}
network: {{pretrained_model_name_or_path: {model}, max_context_length: 96, lora_config: {{lora_r: 2, lora_alpha: 4}}}}
"""


@pytest.fixture
def call(lab):
    """Run the command in the lab's folder; keyword arguments fill the manifest."""

    def run(*more, steps=32, algorithm="beta: 0.0", code=0, rows="rows.jsonl"):
        manifest = lab.folder / "manifest.yaml"
        manifest.write_text(MANIFEST.format(model=lab.model, steps=steps, algorithm=algorithm))
        reward = lab.folder / "reward" / "reward.py"
        given = [
            "--dataset",
            str(lab.folder / rows),
            "--reward",
            str(reward),
            "--workdir",
            str(lab.folder / "out"),
        ]
        result = CliRunner().invoke(main, ["train", str(manifest), *given, *more])
        assert result.exit_code == code, result.output
        return result.output

    return run


def summary(lab):
    return json.loads((lab.folder / "out" / "summary.json").read_text())


def test_it_prints_progress_and_leaves_exports_figures_and_a_summary(lab, call):
    printed = call()

    told = summary(lab)
    assert "m1  32/32  reward" in printed
    assert told["state"] == "completed"
    assert [score["label"] for score in told["test_scores"]] == ["base", "best"]
    assert (lab.folder / "out" / told["best"] / "adapter_model.safetensors").is_file()
    events = [json.loads(line) for line in (lab.folder / "out" / "metrics.jsonl").read_text().splitlines()]
    assert events[-1]["type"] == "finished"
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))


def test_called_again_with_more_steps_it_goes_on(lab, call):
    call()
    printed = call(steps=48)

    assert "resumed at iteration 4" in printed
    assert max(c["step"] for c in summary(lab)["checkpoints"]) == 48


def test_a_folder_of_another_job_is_not_continued(call):
    call()

    assert "holds another job's run" in call(algorithm="beta: 0.5", code=64)


def test_a_failing_reward_is_one_clear_error(lab, call):
    lab.reward("def reward(question, answer, completion):\n    return None\n")

    printed = call(code=10)

    assert "reward.py" in printed
    assert "Traceback" not in printed
    assert summary(lab)["reason"] == "user_code"


def test_what_has_no_room_is_refused_by_name(call):
    assert "quantization" in call(algorithm="quantization: nf4", code=10)


def test_a_column_may_have_another_name(lab, call):
    (lab.folder / "sums.csv").write_text("q,answer\n" + "".join(f"q{i}?,{i}\n" for i in range(40)))

    assert "completed" in call("--column", "question=q", rows="sums.csv")


def test_a_missing_column_is_named(lab, call):
    (lab.folder / "sums.csv").write_text("q,answer\n1,2\n")

    assert "has no column question; it has q, answer" in call(code=10, rows="sums.csv")
