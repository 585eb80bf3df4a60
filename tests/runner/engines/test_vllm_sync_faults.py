"""Eleven faults of a sync to vLLM, made in its own process below what the proof reads: none is sampled from."""

from __future__ import annotations

import shutil

import pytest
from movements import SIZES, move

from arena_runner.engines.base import Request
from arena_runner.engines.reading import PolicyMismatchError

ASKED = [Request(1, (5, 6, 7), 4, greedy=True)]
IN_THE_SLOT = {
    "adapter not loaded": "not_loaded",
    "base served": "base_served",
    "one module missing": "one_module_missing",
    "wrong alpha": "wrong_alpha",
    "transposed": "transposed",
    "half loaded": "half_loaded",
    "dtype": "dtype",
}


def order(process, method, *args):
    answer = process.http.post("/collective_rpc", json={"method": method, "args": list(args)})
    assert answer.is_success, answer.text


@pytest.fixture
def synced(learner, process, vllm_engine):
    """Every member as it should be. What a test broke is mended, and all of them are sent again: a fault of activation
    may have met any that vLLM had put aside meanwhile.
    """
    vllm_engine.sync([0, 1, 2])
    yield vllm_engine
    order(process, "arena_mend")
    process.http.post("/sabotage/alias", json={"name": None})
    vllm_engine.close()
    vllm_engine.generate(ASKED)


def number_of(process, engine, member):
    return process.names()[engine._sent[member].name]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fault", IN_THE_SLOT)
def test_what_lies_wrong_in_a_slot_is_found_before_anything_is_sampled(learner, process, synced, fault, size):
    order(process, "arena_break", IN_THE_SLOT[fault])
    move(learner.population, 1, size)

    with pytest.raises(PolicyMismatchError, match="under m1-"):
        synced.generate(ASKED)


@pytest.mark.parametrize("size", SIZES)
def test_weights_of_the_step_before_are_named(learner, process, synced, size):
    order(process, "arena_break", "of_another", number_of(process, synced, 1))
    move(learner.population, 1, size)

    with pytest.raises(PolicyMismatchError, match=r"under m1-.*they are those of the step before"):
        synced.generate(ASKED)


@pytest.mark.parametrize("size", SIZES)
def test_another_members_weights_are_found(learner, process, synced, size):
    synced.generate([Request(0, (5, 6, 7), 1, greedy=True)])  # so that its slot is not the oldest
    order(process, "arena_break", "of_another", number_of(process, synced, 0))
    move(learner.population, 1, size)

    with pytest.raises(PolicyMismatchError, match="under m1-"):
        synced.generate(ASKED)


@pytest.mark.parametrize("size", SIZES)
def test_a_name_that_still_leads_to_the_adapter_before_is_refused(learner, process, synced, size):
    """Alias not moved."""
    process.http.post("/sabotage/alias", json={"name": synced._sent[1].name})
    move(learner.population, 1, size)

    with pytest.raises(PolicyMismatchError, match="could be an earlier adapter's"):
        synced.generate(ASKED)


@pytest.mark.parametrize("size", SIZES)
def test_an_adapter_loaded_under_a_number_that_has_cached_answers_is_refused(
    learner, process, synced, size, tmp_path
):
    """Stale cache: vLLM keys its cache by the number; in place means the same number for other weights.

    From a folder that stays: vLLM reads it again whenever it has put the adapter aside, and dies where it is gone.
    """
    before, load = synced._sent[1].name, synced.load

    def in_place(name, adapter):
        process.http.post("/sabotage/alias", json={"name": before})
        load(name, adapter)
        kept = shutil.copytree(synced._folder / name, tmp_path / name)
        body = {"lora_name": before, "lora_path": str(kept), "load_inplace": True}
        assert process.http.post("/v1/load_lora_adapter", json=body).is_success

    move(learner.population, 1, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synced, "load", in_place)
        with pytest.raises(PolicyMismatchError, match="could be an earlier adapter's"):
            synced.generate(ASKED)


@pytest.mark.parametrize("layer", ["layers.1.mlp.down_proj", "proj"])
def test_a_layer_that_computes_without_its_adapter_is_found_by_the_path_half(process, synced, layer):
    """The right weights lie there and nobody looks at them: one layer's, and all, which is the base served."""
    order(process, "arena_bypass", layer)

    with pytest.raises(PolicyMismatchError, match=r"alone is not served as it should be"):
        synced.prove()
