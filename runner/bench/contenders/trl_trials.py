"""trl runs one after another, each with a learning rate of its own: what a search over trl is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from trl_run import Run
from turns import serve


class Trials:
    """The trial under way."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.run: Run | None = None

    def begin(self, lr: float) -> None:
        """Start over with a fresh adapter."""
        self.run = Run({**self.settings, "lr": lr})

    def iterate(self) -> dict[str, Any]:
        """One optimizer step."""
        assert self.run is not None
        return self.run.iterate()

    @torch.no_grad()
    def evaluate(self, rows: int) -> dict[str, Any]:
        """Mean reward of greedy completions, all rows in one batch."""
        run = self.run
        assert run is not None
        model, tokenizer = run.trainer.model, run.trainer.processing_class
        asked = self.settings["rows"]["eval"][:rows]
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": row["question"]}], add_generation_prompt=True, tokenize=False
            )
            for row in asked
        ]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        model.eval()
        out = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=False,
            max_new_tokens=self.settings["tokens"],
            pad_token_id=tokenizer.pad_token_id,
        )
        model.train()
        answers = tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        scores = [run.reward("", row["answer"], text) for row, text in zip(asked, answers, strict=True)]
        return {"fitness": [sum(scores) / len(scores)]}


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked."""
    trials = Trials(settings)
    return {"begin": trials.begin, "iterate": trials.iterate, "evaluate": trials.evaluate}


if __name__ == "__main__":
    serve(build)
