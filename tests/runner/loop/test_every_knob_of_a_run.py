"""Two short runs that differ in one knob differ in what was sampled, learned, saved or scheduled; for every knob that is
said to act. The list comes from the schema: a knob without a case fails, and so does a case without a knob.

What a knob does to the update is tests/runner/loop/test_knobs_reach_the_update.py; that it does something in the end
is seen here only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from arena_gitops.spec.algorithms.dpo import DpoKnobs
from arena_gitops.spec.algorithms.grpo import GrpoKnobs
from arena_gitops.spec.algorithms.sft import SftKnobs
from arena_gitops.spec.manifest.environment import TextEnvironment
from arena_gitops.spec.manifest.sections import Lora, TextNetwork, Training
from arena_gitops.spec.population import Mutation, Probabilities, Range, Tournament

WORDS = {"prompt_template": {"user_0": "Say {question}"}}
EVOLVES = {
    "training": {"pop_size": 3, "hpo": True, "evo_steps": 1, "max_steps": 64},
    "mutation": {
        "probabilities": {"no_mut": 0.0, "rl_hp_mut": 1.0},
        "rl_hp_selection": {"lr": {"min": 0.001, "max": 0.1}},
    },
}


@dataclass(frozen=True)
class Case:
    """A knob's other value, and what both runs have besides."""

    other: Any
    given: dict[str, Any] = field(default_factory=dict)
    which: str = "GRPO"


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings in mappings, the second one's values before the first one's."""
    both = {
        key: merged(below[key], above[key])
        for key in below.keys() & above.keys()
        if isinstance(above[key], dict)
    }
    return {**below, **above, **both}


RAGGED = {"algorithm": {"batch_size": 4, "max_output_tokens": 24}, "training": {"max_steps": 32}}
"""Enough tokens for some completions to end before the others."""


def twice(**algorithm: Any) -> dict[str, Any]:
    """The second optimizer step of a batch is the first one off its own policy."""
    return {
        "algorithm": {"update_epochs": 2, "lr": 0.1, "batch_size": 4, **algorithm},
        "training": {"max_steps": 64},
    }


CASES = {
    "algorithm.GRPO": {
        "adv_norm": Case("mean_only"),
        "batch_size": Case(4),
        "beta": Case(0.5, twice()),
        "clip_coef": Case(0.01, twice()),
        "clip_coef_high": Case(0.01, twice()),
        "filter_zero_adv": Case(True, {"reward": "return float(len(question) % 2 and len(completion))"}),
        "group_size": Case(2),
        "importance_sampling_level": Case("trajectory", twice()),
        "kl_estimator": Case("k2", twice(beta=0.5)),
        "loss_type": Case("cispo", twice()),
        "lr": Case(0.01),
        "max_grad_norm": Case(0.01),
        "max_output_tokens": Case(5),
        "normalization": Case("constant", RAGGED),
        "overlong_buffer": Case(1.0, RAGGED),
        "temperature": Case(0.5),
        "update_epochs": Case(2),
        "vllm_importance_sampling_cap": Case(0.5),
        "vllm_importance_sampling_correction": Case(False),
    },
    "algorithm.SFT": {
        "batch_size": Case(2),
        "lr": Case(0.01),
        "max_grad_norm": Case(0.01),
        "update_epochs": Case(2),
    },
    "algorithm.DPO": {
        "batch_size": Case(2),
        "beta": Case(0.5),
        "label_smoothing": Case(0.2),
        "lr": Case(0.01),
        "max_grad_norm": Case(0.01),
        "nll_alpha": Case(0.0),
        "update_epochs": Case(2),
    },
    "training": {
        "checkpoint_steps": Case(1),
        "eval_loop": Case(2),
        "eval_rows": Case(8),
        "evaluation_interval": Case(1, {"training": {"max_steps": 32, "evaluation_interval": 2}}),
        "evo_steps": Case(2, EVOLVES),
        "hpo": Case(False, EVOLVES),
        "max_steps": Case(24),
        "num_epochs": Case(1, {"algorithm": {"batch_size": 8}}, "SFT"),
        "pop_size": Case(2),
        "target_score": Case(-100.0, {"training": {"max_steps": 32, "evo_steps": 1}}),
        "test_rows": Case(4),
    },
    "mutation": {"rand_seed": Case(7)},
    "mutation.probabilities": {
        "no_mut": Case(1.0, merged(EVOLVES, {"mutation": {"probabilities": {"rl_hp_mut": 0.01}}})),
        "rl_hp_mut": Case(0.0, EVOLVES),
    },
    "mutation.rl_hp_selection.lr": {
        "grow_factor": Case(3.0, EVOLVES),
        "max": Case(0.021, EVOLVES),
        "min": Case(0.019, EVOLVES),
        "shrink_factor": Case(0.1, EVOLVES),
    },
    "selection": {
        "elitism": Case(False, EVOLVES | {"selection": {"tournament_size": 1}}),
        "tournament_size": Case(1, EVOLVES | {"selection": {"elitism": False, "tournament_size": 3}}),
    },
    "network": {
        "max_context_length": Case(
            40, {"algorithm": {"max_output_tokens": None}, "network": {"max_context_length": 48}}
        )
    },
    "network.lora_config": {
        "lora_alpha": Case(32),
        "lora_dropout": Case(0.5, which="SFT"),
        "lora_r": Case(4),
        "target_modules": Case(["q_proj"]),
    },
    "environment": {"prompt_template": Case(WORDS["prompt_template"])},
}
SCHEMA = {
    "algorithm.GRPO": GrpoKnobs,
    "algorithm.SFT": SftKnobs,
    "algorithm.DPO": DpoKnobs,
    "training": Training,
    "mutation": Mutation,
    "mutation.probabilities": Probabilities,
    "mutation.rl_hp_selection.lr": Range,
    "selection": Tournament,
    "network": TextNetwork,
    "network.lora_config": Lora,
    "environment": TextEnvironment,
}
ELSEWHERE = {
    "name": "which algorithm: every test of the loop",
    "gradient_checkpointing": "the same numbers in less memory: test_gradient_checkpointing.py",
    "strategy": "one has a room",
    "probabilities": "a section of its own here",
    "rl_hp_selection": "a section of its own here",
    "lora_config": "a section of its own here",
    "pretrained_model_name_or_path": "another model is another run: tests/runner/maths",
    "task_type": "written into adapter_config.json for peft, as given",
    "env_type": "chosen with the algorithm",
    "objective": "chosen with the algorithm",
    "dataset": "a name that the plan resolves",
    "dataset_path": "a name that the plan resolves",
    "hf_dataset_id": "a name that the plan resolves",
    "reward_file_path": "a name that the plan resolves",
    "reward_fn_name": "a name that the plan resolves",
}


@pytest.mark.parametrize("section", SCHEMA)
def test_every_knob_that_acts_has_a_case(section):
    assert set(SCHEMA[section].acted_on()) - set(ELSEWHERE) == set(CASES[section])


def written(section: str, name: str, value: Any) -> dict[str, Any]:
    """The manifest's mappings that hold a knob."""
    path = [key for key in section.split(".") if key not in {"GRPO", "SFT", "DPO"}]
    inner: dict[str, Any] = {name: value}
    for key in reversed(path):
        inner = {key: inner}
    return inner


@pytest.fixture(scope="module")
def seen(module_lab):
    """The trace of a run: what it saved, scored, decided, and when; runs that were made before are remembered."""
    known: dict[str, list[Any]] = {}

    def trace(which: str, sections: dict[str, Any]) -> list[Any]:
        mark = json.dumps([which, sections], sort_keys=True)
        if mark not in known:
            known[mark] = traced(
                module_lab, which, dict(sections), hashlib.sha256(mark.encode()).hexdigest()[:12]
            )
        return known[mark]

    return trace


def traced(lab: Any, which: str, sections: dict[str, Any], name: str) -> list[Any]:
    body = sections.pop(
        "reward", 'return {"vowels": sum(c in "aeiou" for c in completion) / 12, "short": 0.0}'
    )
    lab.reward(f"def reward(question, answer, completion):\n    {body}\n")
    lora = {"lora_r": 2, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}
    network = {"pretrained_model_name_or_path": lab.model, "max_context_length": 96, "lora_config": lora}
    short = {
        "training": {"max_steps": 16, "evo_steps": 2, "eval_rows": 4, "test_rows": 8},
        "network": network,
    }
    seed = sections.get("mutation", {}).get("rand_seed", 42)
    ended = lab.run(lab.job(which, seed=seed, **merged(short, sections)), name=name)
    return [
        [
            (e.checkpoint.step, e.checkpoint.member, e.checkpoint.files["adapter_model.safetensors"])
            for e in ended.of("checkpoint")
        ],
        [(e.step, e.member, e.fitness) for e in ended.of("evaluation")],
        [(e.step, e.member) for e in ended.of("progress")],
        [e.model_dump(exclude={"ts", "seq"}) for e in ended.of("evolution")],
        [e.model_dump(exclude={"ts", "seq"}) for e in ended.of("test_scores")],
    ]


@pytest.mark.parametrize(("section", "name"), [(s, name) for s in CASES for name in CASES[s]])
def test_a_run_with_another_value_is_another_run(seen, section, name):
    case = CASES[section][name]
    which = section.partition(".")[2] if section.startswith("algorithm.") else case.which
    assert seen(which, case.given) != seen(which, merged(case.given, written(section, name, case.other)))
