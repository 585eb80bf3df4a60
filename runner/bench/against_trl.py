"""Updates, memory and whole iterations against trl 1.16: `python runner/bench/against_trl.py [update] [iteration] [head]`.

`update`: one GRPO update of one group of eight, CPU seconds and largest resident memory, each shape a row, beside our own
padded update. `iteration`: generate, score, update on the base model, four members of ours against four trl runs in a
row. `head`: bytes saved for backward of the logprob head. SmolLM2-135M-Instruct, bf16, rank 16 on q/k/v/o, one thread, the
processes taking turns.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from turns import Contender, in_turn

PYTHON = os.environ.get("ARENA_TRL_PYTHON", sys.executable)
MODEL = "smollm2-135m-instruct"
ADAPTER: dict[str, Any] = {"rank": 16, "targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}
SHAPES = ((80, 48), (200, 96), (512, 32), (80, 400))
"""prompt tokens, completion tokens"""
GRID = tuple((prompt, tokens) for prompt in (40, 160, 640) for tokens in (16, 48, 128, 320))
"""shapes of which none may be slower than padded"""


def folder() -> str:
    """Where the base model lies; fetched when it is not there."""
    from arena_runner.fetch import fetch
    from arena_runner.models import default_models_dir, resolve

    fetch(MODEL, models_dir=default_models_dir())
    return str(resolve(MODEL))


def update(python: str, model: str, options: argparse.Namespace, *, beta: float, ragged: bool) -> None:
    """A table of CPU seconds and of memory."""
    told = {"model": model, "dtype": options.dtype, "beta": beta, "tokens_per_backward": 1024, **ADAPTER}
    print(
        f"\n| update, {options.dtype}, beta {beta}{', ragged' if ragged else ''} | ours | trl | padded | trl/ours | padded/ours |"
    )
    print("|---|---|---|---|---|---|")
    for prompt, tokens in options.shape or SHAPES:
        with ExitStack() as stack:
            contenders = [
                stack.enter_context(
                    Contender("ours", sys.executable, "our_update.py", {**told, "padded": False})
                ),
                stack.enter_context(Contender("trl", python, "trl_update.py", told)),
                stack.enter_context(
                    Contender("padded", sys.executable, "our_update.py", {**told, "padded": True})
                ),
            ]
            for each in contenders:
                each.ask("update", prompt=8, tokens=8, beta=beta, ragged=False)  # warm
                each.ask("forget_peak")
            told_shape = {"prompt": prompt, "tokens": tokens, "beta": beta, "ragged": ragged}
            figures = in_turn(contenders, "update", repeats=options.repeats, warm=0, **told_shape)
        for what, key in (("CPU-s", "cpu_s"), ("peak RSS MiB", "peak_mib")):
            ours, trl, padded = (figures[name][key] for name in ("ours", "trl", "padded"))
            print(
                f"| P={prompt} L={tokens} {what} | {ours:.4g} | {trl:.4g} | {padded:.4g} "
                f"| {trl / ours:.2f} x | {padded / ours:.2f} x |",
                flush=True,
            )


def grid(model: str, repeats: int, dtype: str) -> None:
    """Twelve shapes against our own padded update."""
    told = {"model": model, "dtype": dtype, "tokens_per_backward": 1024, **ADAPTER}
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(
                Contender(name, sys.executable, "our_update.py", {**told, "padded": name == "padded"})
            )
            for name in ("ours", "padded")
        ]
        print("\n| grid | ours | padded | padded/ours |\n|---|---|---|---|")
        for prompt, tokens in GRID:
            figures = in_turn(
                contenders, "update", repeats=repeats, prompt=prompt, tokens=tokens, beta=0.0, ragged=False
            )
            ours, padded = (figures[name]["cpu_s"] for name in ("ours", "padded"))
            print(
                f"| P={prompt} L={tokens} CPU-s | {ours:.4g} | {padded:.4g} | {padded / ours:.2f} x |",
                flush=True,
            )


def iteration(python: str, model: str, *, members: int, repeats: int) -> None:
    """4 prompts x 8 completions x 96 tokens after about 200: one iteration of all members."""
    rows = _long_questions(64)
    told = {
        "model": model,
        "dtype": "bfloat16",
        "prompts": 4,
        "completions": 8,
        "tokens": 96,
        "context": 384,
        "all_tokens": True,
        "reward": "vowels",
        "rows": {"train": rows, "eval": rows[:1]},
        **ADAPTER,
    }
    with ExitStack() as stack:
        ours = stack.enter_context(
            Contender("ours", sys.executable, "our_population.py", {**told, "members": members})
        )
        trl = stack.enter_context(Contender("trl", python, "trl_run.py", told))
        figures = in_turn([ours, trl], "iterate", repeats=repeats, warm=0)
    assert figures["ours"]["tokens"] == members * figures["trl"]["tokens"], figures
    here, there = figures["ours"]["cpu_s"], members * figures["trl"]["cpu_s"]
    print(
        f"\n| iteration of {members} members, {figures['ours']['tokens']} tokens | ours | trl, {members} in a row | ratio |"
    )
    print(f"|---|---|---|---|\n| CPU-s | {here:.1f} | {there:.1f} | {there / here:.2f} x |")
    print(
        f"| peak RSS MiB | {figures['ours']['peak_mib']:.0f} | {figures['trl']['peak_mib']:.0f} (one run) | |",
        flush=True,
    )


def _long_questions(count: int) -> list[dict[str, str]]:
    """About 170 tokens each, 200 with the chat template."""
    filler = "the baker sells two loaves and counts three coins while a child waits by the door "
    return [
        {"question": f"Story {n}: " + filler * 10 + f"How many is {n} plus {n}?", "answer": f"#### {2 * n}"}
        for n in range(count)
    ]


def head() -> None:
    """Bytes saved for backward at S=4096, V=32k: ours, trl's fused head, plain log-softmax and gather."""
    import torch
    from trl.trainer import utils as theirs

    from arena_runner import ops

    tokens, vocabulary, width = 4096, 32_768, 576
    hidden = torch.randn(tokens, width, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(vocabulary, width, dtype=torch.bfloat16)
    targets, ones = torch.randint(vocabulary, (tokens,)), torch.ones(tokens)

    def fused() -> object:
        rest = (targets, 1.0, theirs._CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ("log_probs",))  # noqa: SLF001 - their head
        return theirs._ChunkedLogProbFunction.apply(hidden, weight, None, *rest)  # noqa: SLF001 - the same

    heads: dict[str, Callable[[], object]] = {
        "ours": lambda: ops.head_logprobs(hidden, weight, targets, ones),
        "trl's fused head": fused,
        "plain": lambda: (hidden @ weight.T).float().log_softmax(-1).gather(1, targets[:, None]),
    }
    print("\n| head, S=4096, V=32,768, d=576, bf16 | saved for backward |\n|---|---|")
    for name, run in heads.items():
        saved: dict[int, int] = {}

        def keep(tensor: torch.Tensor, saved: dict[int, int] = saved) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() != weight.untyped_storage().data_ptr():
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            result = run()
        print(f"| {name} | {sum(saved.values()) / 2**20:.1f} MiB |", flush=True)
        del result


def main(arguments: Sequence[str] | None = None) -> None:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["update", "grid", "iteration", "head"])
    parser.add_argument("--python", default=PYTHON, help="an interpreter that has trl 1.16")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--shape", type=int, nargs=2, action="append", help="of `update`; repeatable")
    parser.add_argument("--quick", action="store_true", help="beta 0, equal lengths only")
    options = parser.parse_args(arguments)
    model = folder()
    if "update" in options.what:
        kinds = [(0.0, False), (0.001, False), (0.0, True), (0.001, True)]
        for beta, ragged in kinds[: 1 if options.quick else None]:
            update(options.python, model, options, beta=beta, ragged=ragged)
    if "grid" in options.what:
        grid(model, options.repeats, options.dtype)
    if "iteration" in options.what:
        iteration(options.python, model, members=options.members, repeats=options.repeats)
    if "head" in options.what:
        head()


if __name__ == "__main__":
    main()
