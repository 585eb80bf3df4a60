"""The same gradients as trl 1.16, the field's reference implementation, on one tiny model with one adapter in fp32.

trl's own loss functions run, on its own padded batches; only the rollouts are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import peft
import pytest
import torch
from populations import make_learner, relative, scored_groups
from transformers import AutoModelForCausalLM, AutoTokenizer

from arena_runner.algorithms import dpo, grpo, sft
from arena_runner.algorithms.grpo import Advantage, GrpoSettings, Level, Normalisation, Surrogate
from arena_runner.learner import Learner

trl = pytest.importorskip("trl", reason="the peer; pip install 'trl>=1.16,<1.17'")
pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN = {
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
    "gradient_checkpointing": False,
    "disable_tqdm": True,
}
GRPO = {
    "grpo": ({"loss_type": "grpo"}, GrpoSettings(lr=1.0)),
    "grpo with kl": (
        {"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": True},
        GrpoSettings(lr=1.0, beta=0.3),
    ),
    "dr_grpo": (
        {"loss_type": "dr_grpo"},
        GrpoSettings(
            lr=1.0,
            normalisation=Normalisation.CONSTANT,
            advantage=Advantage.MEAN_ONLY,
            max_completion_tokens=12,
        ),
    ),
    "dapo": (
        {"loss_type": "dapo", "epsilon_high": 0.28},
        GrpoSettings(lr=1.0, normalisation=Normalisation.TOKEN, clip_high=0.28),
    ),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.05},
        GrpoSettings(lr=1.0, normalisation=Normalisation.TOKEN, surrogate=Surrogate.CISPO, clip_high=1.05),
    ),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        GrpoSettings(lr=1.0, level=Level.SEQUENCE, clip_low=3e-4, clip_high=4e-4),
    ),
}


@dataclass
class Rig:
    """One adapter twice: in our population, and in peft on a copy of the same model."""

    learner: Learner
    policy: peft.PeftModel
    tokenizer: object
    folder: str

    def difference(self):
        return relative(ours(self.learner.population), theirs(self.policy, self.learner.population))


@pytest.fixture
def rig(tiny_model_dir, tmp_path):
    learner = make_learner(tiny_model_dir, ranks=(4,), alphas=(8,), dtype=torch.float32)
    learner.population.save(0, tmp_path / "adapter")
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    policy = peft.PeftModel.from_pretrained(model, tmp_path / "adapter", is_trainable=True)
    return Rig(learner, policy, AutoTokenizer.from_pretrained(tiny_model_dir), str(tmp_path))


def ours(population):
    rows = population.grads[population.span(0)]
    return torch.cat(
        [part.flatten() for site in population.sites for part in (rows[:, site.a], rows[:, site.b].T)]
    )


def theirs(policy, population):
    named = {name.replace(".default", ""): p.grad for name, p in policy.named_parameters()}
    return torch.cat(
        [
            named[f"base_model.model.{site.name}.lora_{half}.weight"].flatten()
            for site in population.sites
            for half in "AB"
        ]
    )


def padded(texts, *, left=False):
    side = "left" if left else "right"
    rows = [torch.tensor(text) for text in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side=side)
    return ids, torch.nn.utils.rnn.pad_sequence(
        [torch.ones_like(row) for row in rows], batch_first=True, padding_side=side
    )


def groups_of_one_member():
    """Ragged prompts and completions, every completion scored; the engine's opinion is the trainer's own."""
    return [
        replace(g, member=0, rewards=tuple(0.0 if r is None else r for r in g.rewards))
        for g in scored_groups()
    ]


@pytest.mark.parametrize("moved", [0.0, 0.1])
@pytest.mark.parametrize("name", GRPO)
def test_grpo(rig, name, moved):
    learner, policy = rig.learner, rig.policy
    config, settings = GRPO[name]
    settings = {0: replace(settings, importance_cap=None, temperature=0.9)}
    groups = groups_of_one_member()
    completions = [(g.prompt_ids, c.token_ids) for g in groups for c in g.completions]
    trainer = trl.GRPOTrainer(
        policy,
        reward_funcs=lambda **_: [0.0],
        processing_class=rig.tokenizer,
        train_dataset=rows({"prompt": "x"}),
        args=trl.GRPOConfig(
            **PLAIN,
            **{"beta": 0.0} | config,
            output_dir=rig.folder,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=12,
            temperature=0.9,
        ),
    )
    prompts, prompt_mask = padded([p for p, _ in completions], left=True)
    answers, mask = padded([c for _, c in completions])
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": answers,
        "completion_mask": mask,
        "advantages": torch.tensor(
            [a for g in groups for a in grpo.advantages(g.rewards, settings[0].advantage)]
        ),
        "num_items_in_batch": mask.sum(),
    }
    with torch.no_grad():
        told = [torch.cat([prompts, answers], 1), torch.cat([prompt_mask, mask], 1), answers.shape[1]]
        old = trainer._get_per_token_logps_and_entropies(policy, *told)[0] - moved
        with policy.disable_adapter():
            inputs["ref_per_token_logps"] = trainer._get_per_token_logps_and_entropies(policy, *told)[0]
    if moved:
        inputs["old_per_token_logps"] = old
    policy.train()
    trainer.current_gradient_accumulation_steps = 1
    trainer.args.steps_per_generation = 1
    trainer._compute_loss(policy, inputs).backward()

    batch = grpo.prepare(learner, groups, settings)
    if moved:
        batch.old._rows.update({i: row[m.bool()] for i, (row, m) in enumerate(zip(old, mask, strict=True))})
    grpo.accumulate(learner, batch, settings, [0])

    assert rig.difference() <= 2e-5


def rows(*records):
    from datasets import Dataset

    return Dataset.from_list(list(records))


def test_dpo(rig):
    learner, policy = rig.learner, rig.policy
    pairs = [
        dpo.Pair(0, (5, 6, 7), (8, 9, 2), (10, 2)),
        dpo.Pair(0, (10, 11), (12, 13, 14, 15, 16, 2), (12, 13, 14, 2)),
    ]
    pairs = [replace(p, reference=dpo.log_probabilities(learner, p, reference=True)) for p in pairs]
    trainer = trl.DPOTrainer(
        policy,
        args=trl.DPOConfig(**PLAIN, output_dir=rig.folder, beta=0.3, precompute_ref_log_probs=False),
        processing_class=rig.tokenizer,
        train_dataset=rows({"prompt": "a", "chosen": " b", "rejected": " c"}),
    )
    policy.delete_adapter("ref")  # trl would measure from the adapter it was given, not from the base
    texts = [(p.prompt_ids, p.chosen_ids) for p in pairs] + [(p.prompt_ids, p.rejected_ids) for p in pairs]
    ids, attention = padded([p + c for p, c in texts])
    learned, _ = padded([(0,) * len(p) + (1,) * len(c) for p, c in texts])
    inputs = {"input_ids": ids, "attention_mask": attention, "completion_mask": learned}
    policy.train()
    trainer._compute_loss(policy, inputs, return_outputs=False).backward()

    dpo.accumulate(learner, pairs, {0: dpo.DpoSettings(lr=1.0, beta=0.3)}, [0])

    assert rig.difference() <= 2e-5


def test_sft(rig):
    examples = [sft.Example(0, (5, 6, 7), (8, 9, 2)), sft.Example(0, (10, 11), (12, 13, 14, 15, 16, 2))]
    trainer = trl.SFTTrainer(
        rig.policy,
        args=trl.SFTConfig(**PLAIN, output_dir=rig.folder),
        processing_class=rig.tokenizer,
        train_dataset=rows({"prompt": "a", "completion": " b"}),
    )
    ids, attention = padded([e.prompt_ids + e.target_ids for e in examples])
    labels, _ = padded([(-100,) * len(e.prompt_ids) + e.target_ids for e in examples])
    inputs = {
        "input_ids": ids,
        "attention_mask": attention,
        "labels": labels.masked_fill(attention == 0, -100),
    }
    rig.policy.train()
    trainer.compute_loss(rig.policy, inputs).backward()

    sft.accumulate(rig.learner, examples, {0: sft.SftSettings(lr=1.0)}, [0])

    assert rig.difference() <= 2e-5
