"""What a run says when something is not as it should be: whose fault, and what to change."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from arena_gitops.spec.job import ResumeState
from arena_runner import checkpoint
from arena_runner.ports import InterruptedRunError


class Choking:
    """Ports of a machine that runs out of something in mid-training."""

    def __init__(self, error):
        self.error = error

    def emit(self, event, files=None):
        if event.type == "progress":
            raise self.error

    def stop(self):
        return None

    def cap(self):
        return None


def test_pairs_of_equal_answers_are_left_out_and_said(lab):
    rows = lab.folder / "rows.jsonl"
    rows.write_text(rows.read_text().replace('"yes 0!"', '"no"'))
    ended = lab.run(lab.job("DPO", training={"max_steps": 8}))

    assert "14 rows left out: chosen and rejected are equal" in [e.message for e in ended.of("log")]


def test_a_model_that_cannot_pack_says_so_and_trains(lab, tiny_model_of):
    model = tiny_model_of("gemma2", final_logit_softcapping=None, query_pre_attn_scalar=8)
    lab = replace(lab, model=str(model))
    ended = lab.run(lab.job("SFT", training={"max_steps": 8}))
    warned = next(e.message for e in ended.of("log") if e.level == "warning")

    assert warned.startswith("Gemma2ForCausalLM takes the padded path")
    assert {e.values["packed_share"] for e in ended.of("metrics") if e.member is None} == {0.0}


def test_a_reward_without_signal_ends_the_run_and_shows_completions(lab):
    lab.reward("def reward(question, answer, completion):\n    return 0.5\n")
    ended = lab.run(lab.job("GRPO", training={"max_steps": 1000}), fails=True)

    assert (ended.finished.state, ended.finished.reason) == ("failed", "user_code")
    assert ended.finished.message.startswith("no signal")
    assert ended.finished.message.count("reward 0.5 for") == 3
    assert len(ended.of("progress")) == 10


def test_a_batch_without_signal_leaves_the_weights_alone_but_counts(lab):
    lab.reward("def reward(question, answer, completion):\n    return 0.5\n")
    ended = lab.run(lab.job("GRPO", training={"max_steps": 16}))

    assert [e.values["groups_without_signal"] for e in ended.of("metrics") if e.member == 0] == [2.0, 2.0]
    states = checkpoint.state_folders(lab.folder / "run" / "states")
    assert all(not state.moments["mean"].any() for _, state in map(checkpoint.load_state, states))


def test_a_reward_that_raises_names_its_own_line(lab):
    lab.reward("def reward(question, answer, completion):\n    return 1 / 0\n")
    ended = lab.run(lab.job("GRPO"), fails=True)

    assert (ended.finished.state, ended.finished.reason) == ("failed", "user_code")
    assert "reward.py:2" in ended.finished.message
    assert "division by zero" in ended.finished.message


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
    ],
)
def test_running_out_of_memory_ends_the_run_with_what_to_lower(lab, error):
    finished = lab.train(lab.job("SFT"), "run", Choking(error))

    assert (finished.state, finished.reason) == ("failed", "oom")
    assert "lower max_context_length" in finished.message


def test_a_fault_of_our_own_is_not_the_users(lab):
    with pytest.raises(RuntimeError, match="shapes"):
        lab.train(lab.job("SFT"), "run", Choking(RuntimeError("shapes do not fit")))


@pytest.mark.parametrize("algorithm", ["GRPO", "SFT", "DPO"])
def test_a_member_that_diverges_is_overwritten_by_the_next_generation_and_ends_nobodys_run(lab, algorithm):
    """Its neighbours in the same packs go on learning; the run ends well."""
    job = lab.job(
        algorithm, training={"max_steps": 64 if algorithm == "GRPO" else 32, "pop_size": 3, "evo_steps": 3}
    )
    with pytest.raises(InterruptedRunError):
        lab.train(job, "run", lab.ports(stop_after=1))
    state = checkpoint.state_folders(lab.folder / "run" / "states")[-1]
    adapters = load_file(state / checkpoint.ADAPTERS)
    adapters["masters"][2:4] = 1e25  # two rows of three times two: m1
    save_file(adapters, state / checkpoint.ADAPTERS)
    resume = ResumeState(iteration=1, files={})
    again = lab.run(job.model_copy(update={"resume": resume}), resume=state)

    warned = [e.message for e in again.of("log") if "has diverged" in e.message]
    copied = [r for e in again.of("evolution") for r in e.records if r.member == 1 and r.parent != 1]
    learned = [e.member for e in again.of("metrics") if "grad_norm" in e.values]
    assert {message[:2] for message in warned} == (
        {"m1"} if algorithm != "GRPO" else set()
    )  # it says one thing only
    assert copied
    assert {0, 2} <= set(learned[:2])
    assert learned.count(1) >= 1  # a copy of a sound member, it learns again
