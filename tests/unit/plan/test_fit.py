"""Whether a run fits: with numbers where they are known, and never `ok` where they are not."""

import json

import pytest
from stacks import small

from arena_gitops.plan.fit import memory_of
from arena_gitops.plan.model import Action, CheckStatus
from arena_gitops.plan.shapes import KNOWN, shape_of
from arena_gitops.report import words
from arena_gitops.spec.memory import BF16, FP32, facts_of, load_of, need
from arena_gitops.spec.wire import Tier

PARAMETERS = {"smollm2-135m": 134_515_008, "qwen2.5-0.5b": 494_032_768, "llama-3.2-1b": 1_235_814_400}
"""As their publishers count them."""


def tier(name="medium", **fields):
    return Tier(**{"id": name, "num_cpus": 8, "ram_gb": 32, "credits_per_node_hour": 2.0, **fields})


def big(**fields):
    """The usual stack on a model of eight billion parameters."""
    return small(
        tier="medium",
        model={"id": "meta-llama/Llama-3.1-8B-Instruct", "revision": None},
        set={"network.max_context_length": 1024},
        **fields,
    )


@pytest.mark.parametrize(
    ("offer", "verdict"),
    [
        (tier(num_gpus=1, gpu_type="NVIDIA H200"), "ok"),
        (tier(num_gpus=1, gpu_type="A10G"), "tight"),
        (tier(num_gpus=1, gpu_memory_gb=8.0), "no_fit"),
        (tier(num_gpus=1, gpu_type="some new one"), "unknown"),
        (tier(ram_gb=8), "no_fit"),
        (tier(ram_gb=128, job_gb=8), "no_fit"),
    ],
)
def test_a_large_model_needs_a_large_place(scene, offer, verdict):
    assert scene(tiers=[offer]).change(big()).fit.verdict == verdict


def test_what_cannot_fit_is_blocked_with_numbers_and_a_way_out(scene):
    here = scene(tiers=[tier(ram_gb=8)])
    change = here.change(big())
    assert (change.action, change.reason) == (Action.BLOCKED, "does_not_fit")
    assert "GiB, there are 8" in change.message
    assert here.change(big(), allow=frozenset({"oversize"})).action is Action.CREATE


def test_what_may_not_fit_is_a_warning(scene):
    plan = scene(tiers=[tier(num_gpus=1, gpu_type="A10G")]).plan(big())
    (check,) = [check for check in plan.checks if check.name == "fit"]
    assert check.status is CheckStatus.WARN
    assert plan.applyable


def test_a_model_nobody_knows_is_unknown_and_stops_nothing(scene):
    change = scene(tiers=[tier()]).change(small(tier="medium"))
    assert (change.action, change.fit.verdict) == (Action.CREATE, "unknown")
    assert words.fit_line(change) == "unknown whether it fits (the shape of tiny is not known)"


def test_a_platform_knows_the_shapes_of_its_own_models(scene):
    tiny = KNOWN["smollm2-135m"].model_copy(update={"id": "tiny"})
    change = scene(tiers=[tier()], models=[tiny]).change(small(tier="medium"))
    assert change.fit.verdict == "ok"
    assert change.fit.parts["weights"] == 0.5
    assert words.fit_line(change).startswith("fits: 1.")


def test_what_starts_nothing_is_not_judged(scene):
    here = scene(tiers=[tier()]).applied(small(tier="medium"))
    assert here.change(small(tier="medium", description="newer")).fit is None
    assert here.change(small().reward(source="x = 1\n"), "reward/exact").fit is None


@pytest.mark.parametrize("name", PARAMETERS)
def test_known_shapes_add_up_to_what_their_publishers_count(name):
    assert KNOWN[name].weights == pytest.approx(PARAMETERS[name], rel=0.001)


@pytest.mark.parametrize(
    "name", ["HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m-instruct", "SmolLM2-135M"]
)
def test_a_shape_is_found_under_the_names_people_use(name):
    assert shape_of(name, {}) == KNOWN["smollm2-135m"]
    assert shape_of("elsewhere/unheard-of", {}) is None


def test_a_config_that_is_not_of_this_family_has_no_shape():
    assert facts_of("x", {"hidden_size": 8}) is None
    assert facts_of("x", json.loads('{"num_attention_heads": 0, "hidden_size": 1}')) is None


def manifest(**changes):
    found = {
        "algorithm": {"batch_size": 4, "group_size": 8, "max_output_tokens": 64},
        "training": {"pop_size": 2},
        "network": {"max_context_length": 256, "lora_config": {"lora_r": 8, "target_modules": ["q_proj"]}},
    }
    for path, value in changes.items():
        section, key = path.split("__")
        found[section] = {**found[section], key: value}
    return found


def peak(manifest, *, dtype=BF16, device="cuda", prompt=128):
    facts = KNOWN["smollm2-135m"]
    return need(facts, load_of(manifest), device=device, dtype=dtype, prompt_tokens=prompt)


@pytest.mark.parametrize(
    "more",
    [
        {"training__pop_size": 8},
        {"algorithm__group_size": 32},
        {"algorithm__max_output_tokens": 512},
        {"network__lora_config": {"lora_r": 64, "target_modules": ["q_proj"]}},
        {"network__lora_config": {"lora_r": 8, "target_modules": "all-linear"}},
    ],
)
def test_more_of_anything_needs_more(more):
    assert peak(manifest(**more)).peak > peak(manifest()).peak


def test_a_member_more_costs_adapters_and_not_weights():
    two, three = peak(manifest()), peak(manifest(training__pop_size=3))
    assert two.weights == three.weights
    assert three.adapters == two.adapters * 3 // 2
    assert three.moments == two.moments * 3 // 2


def test_twice_the_precision_is_twice_the_weights():
    assert peak(manifest(), dtype=FP32).weights == 2 * peak(manifest()).weights


def test_supervised_training_samples_nothing():
    found = peak({**manifest(), "algorithm": {"batch_size": 4}})
    assert found.sampling == 0
    assert found.training > 0


def test_the_memory_of_a_tier():
    assert memory_of(tier(slots=4)) == 8
    assert memory_of(tier(num_gpus=1, gpu_type="NVIDIA-H200")) == 139.0
