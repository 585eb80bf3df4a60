"""Micro-batches follow the memory that is free when a run starts, and are kept by every later segment."""

import os

import pytest
import torch

from arena_gitops.spec.job import ResumeState
from arena_gitops.spec.manifest import Manifest
from arena_gitops.spec.memory import GIB, TOLERANCE
from arena_runner import checkpoint, micro_batches
from arena_runner.expected import needed
from arena_runner.opening import open_parts
from arena_runner.ports import InterruptedRunError


@pytest.fixture
def opened(lab):
    """A run before its first iteration."""
    job = lab.job("GRPO", algorithm={"batch_size": 64})
    with open_parts(job, lab.materials(), lab.ports()) as parts:
        yield parts.trained, Manifest.from_normal(job.manifest)


def test_where_there_is_room_nothing_is_made_smaller(opened):
    learner, manifest = opened
    assert micro_batches.that_fit(learner, manifest, 64 * GIB) == learner.tokens_per_backward == 1024


def test_tokens_are_halved_until_an_update_fits(opened):
    learner, manifest = opened
    half = needed(learner, manifest, 512)
    free = int((half.adapters + half.training) * (1 + TOLERANCE)) + 1

    assert needed(learner, manifest, 1024).training > half.training
    assert micro_batches.that_fit(learner, manifest, free) == 512


def test_there_is_an_end_to_halving(opened):
    learner, manifest = opened
    assert micro_batches.that_fit(learner, manifest, 0) == 128


def test_a_run_says_that_it_makes_do_with_less_and_keeps_to_it(lab, monkeypatch):
    job, begun = lab.job("GRPO", training={"max_steps": 16}), lab.ports(stop_after=1)
    monkeypatch.setattr(micro_batches, "free_bytes", lambda _: 0)
    with pytest.raises(InterruptedRunError):
        lab.train(job, "parts", begun)
    monkeypatch.undo()
    state = checkpoint.state_folders(lab.folder / "parts" / "states")[-1]
    ended = lab.run(job.model_copy(update={"resume": ResumeState(iteration=1, files={})}), "parts", state)

    (said,) = [event.message for event in begun.of("log") if "micro-batches" in event.message]
    assert said.startswith(
        "0.00 GiB of memory are free: updates in micro-batches of 128 tokens instead of 1024"
    )
    assert [event.tokens_per_backward for event in (*begun.of("started"), *ended.of("started"))] == [128, 128]


def test_what_is_free_is_never_more_than_the_machine_has():
    assert (
        0
        < micro_batches.free_bytes(torch.device("cpu"))
        <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )
