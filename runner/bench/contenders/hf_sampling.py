"""Sampling by transformers' `generate`: the bare base, one PEFT adapter, or several members in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from turns import serve


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked: `sample`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=getattr(torch, settings["dtype"]))
    members, rank = settings["members"], settings["rank"]
    if members:
        lora = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules=settings["targets"], task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, lora, adapter_name="m0")
        for place in range(1, members):
            model.add_adapter(f"m{place}", lora)
    model.eval()
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id

    @torch.inference_mode()
    def sample(*, prompts: Sequence[Sequence[int]], completions: int, tokens: int) -> dict[str, Any]:
        useful = 0
        for place in range(max(members, 1)):
            own = prompts[place :: max(members, 1)]
            if members:
                model.set_adapter(f"m{place}")
            longest = max(map(len, own))
            ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in own])
            seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in own])
            out = model.generate(
                input_ids=ids,
                attention_mask=seen,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                repetition_penalty=1.0,
                num_return_sequences=completions,
                max_new_tokens=tokens,
                pad_token_id=pad,
            )[:, longest:]
            ends = (out == tokenizer.eos_token_id).int()
            useful += int(((ends.cumsum(1) - ends) == 0).sum())
        return {"tokens": useful}

    return {"sample": sample}


if __name__ == "__main__":
    serve(build)
