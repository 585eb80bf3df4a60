"""trl's GRPO trainer, one optimizer step a turn: generation, rewards and update are all its own."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, set_seed
from turns import serve


class OneStepATurn(TrainerCallback):
    """Holds the training between two steps until it is asked for the next one."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[None] = SimpleQueue()
        self.done: SimpleQueue[None] = SimpleQueue()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Wait."""
        self.asked.get()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Tell."""
        self.done.put(None)


class Run:
    """A trainer in a thread of its own."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        torch.set_num_threads(1)
        set_seed(settings.get("seed", 0))
        self.tokens = 0
        self.reward = import_module(f"rewards.{settings['reward']}").reward
        self.turn = OneStepATurn()
        half = settings["dtype"] == "bfloat16"
        tokenizer = AutoTokenizer.from_pretrained(settings["model"])
        tokenizer.padding_side = "left"
        rows = [
            {"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]}
            for row in settings["rows"]["train"]
        ]
        own = {"min_new_tokens": settings["tokens"]} if settings["all_tokens"] else {}
        self.trainer = trl.GRPOTrainer(
            AutoModelForCausalLM.from_pretrained(settings["model"], dtype=getattr(torch, settings["dtype"])),
            reward_funcs=self._score,
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows),
            peft_config=LoraConfig(
                r=settings["rank"],
                lora_alpha=2 * settings["rank"],
                target_modules=settings["targets"],
                task_type="CAUSAL_LM",
            ),
            args=trl.GRPOConfig(
                use_cpu=True,
                bf16=half,
                report_to="none",
                gradient_checkpointing=False,
                disable_tqdm=True,
                logging_strategy="no",
                save_strategy="no",
                output_dir=tempfile.mkdtemp(),
                per_device_train_batch_size=settings["completions"],
                gradient_accumulation_steps=settings["prompts"],
                num_generations=settings["completions"],
                beta=settings.get("beta", 0.001),
                learning_rate=settings.get("lr", 1e-5),
                lr_scheduler_type="constant",
                max_completion_length=settings["tokens"],
                max_steps=1_000_000,
                max_grad_norm=1.0,
                temperature=1.0,
                loss_type="grpo",
                seed=settings.get("seed", 0),
                generation_kwargs=own,
            ),
            callbacks=[self.turn],
        )
        self.thread = threading.Thread(target=self.trainer.train, daemon=True)
        self.thread.start()

    def _score(self, completions: Any, answer: Any, completion_ids: Any, **_: Any) -> list[float]:
        self.tokens = sum(map(len, completion_ids))
        texts = [turns[0]["content"] for turns in completions]
        return [self.reward("", gold, text) for gold, text in zip(answer, texts, strict=True)]

    def iterate(self) -> dict[str, Any]:
        """Generate, score, update."""
        self.turn.asked.put(None)
        while self.thread.is_alive():
            try:
                self.turn.done.get(timeout=1)
            except Empty:
                continue
            return {"tokens": self.tokens}
        raise SystemExit("trl's training ended")


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked."""
    run = Run(settings)
    return {"iterate": run.iterate}


if __name__ == "__main__":
    serve(build)
