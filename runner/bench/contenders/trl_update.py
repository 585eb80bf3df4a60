"""trl's own GRPO loss, backward and optimizer step on one group; checkpointing is off, its fused head on."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import trl
from datasets import Dataset
from groups_made import group
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from turns import serve


def _trainer(policy: Any, settings: Mapping[str, Any]) -> Any:
    """Trl's trainer around it; it is never asked to train."""
    trainer = trl.GRPOTrainer(
        policy,
        reward_funcs=lambda **_: [0.0],
        processing_class=AutoTokenizer.from_pretrained(settings["model"]),
        train_dataset=Dataset.from_list([{"prompt": "x"}]),
        args=trl.GRPOConfig(
            use_cpu=True,
            bf16=settings["dtype"] == "bfloat16",
            report_to="none",
            gradient_checkpointing=False,
            disable_tqdm=True,
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=8,
            num_generations=8,
            beta=settings["beta"],
            max_completion_length=512,
        ),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.args.steps_per_generation = 1
    return trainer


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked: `update`."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=getattr(torch, settings["dtype"]))
    rank = settings["rank"]
    policy = get_peft_model(
        model,
        LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=settings["targets"], task_type="CAUSAL_LM"),
    )
    trainer = _trainer(policy, settings)
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, weight_decay=0.0)
    policy.train()

    def update(*, prompt: int, tokens: int, beta: float, ragged: bool) -> None:
        prompt_ids, completions, rewards = group(
            prompt, tokens, ragged=ragged, vocabulary=model.config.vocab_size
        )
        rows = [torch.tensor(ids) for ids in completions]
        answers = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        prompts = torch.tensor([prompt_ids] * len(rows))
        scores = torch.tensor(rewards)
        inputs = {
            "prompt_ids": prompts,
            "prompt_mask": torch.ones_like(prompts),
            "completion_ids": answers,
            "completion_mask": mask,
            "advantages": (scores - scores.mean()) / (scores.std() + 1e-4),
            "num_items_in_batch": mask.sum(),
        }
        with trainer.compute_loss_context_manager():
            if beta:
                whole = (torch.cat([prompts, answers], 1), torch.cat([torch.ones_like(prompts), mask], 1))
                with torch.no_grad(), policy.disable_adapter():
                    inputs["ref_per_token_logps"] = trainer._get_per_token_logps_and_entropies(  # noqa: SLF001 - its own pass
                        policy, *whole, answers.shape[1]
                    )[0]
            loss = trainer._compute_loss(policy, inputs)  # noqa: SLF001 - the loss itself is what is measured
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return {"update": update}


if __name__ == "__main__":
    serve(build)
