"""A population against AgileRL's, N = 1, 2, 4, 8: `python runner/bench/against_agilerl.py [--python PATH] [--members …]`.

Same random models, prompts, reward, sampled tokens, rank, fp32, one thread; the two processes take turns. AgileRL needs
an environment of its own (`make peers`), and does not train text on a CPU as installed: what its script had to do is said
in `contenders/agilerl_population.py`.
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

from models_made import MIDDLE, TINY, made, sums
from turns import Contender, in_turn

PYTHON = os.environ.get("ARENA_AGILERL_PYTHON", ".venv-agilerl/bin/python")
SPEED = {"prompts": 4, "completions": 4, "tokens": 32, "context": 160}
MEMORY = {"prompts": 2, "completions": 2, "tokens": 8, "context": 160, "tokens_per_backward": 184}
"""AgileRL's backward holds a member's whole batch, 4 rows of 46 tokens; ours fills up to its budget from all members"""
EVAL_ROWS = 4
GENERATION = 2
"""iterations of a generation"""


def settings(model: str, members: int, sizes: dict[str, int]) -> dict[str, Any]:
    """What both are built from."""
    rows = sums(32)
    return {
        "model": model,
        "members": members,
        "rank": 8,
        "targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
        "all_tokens": True,
        "reward": "vowels",
        "rows": {"train": rows[:24], "eval": rows[24:]},
        **sizes,
    }


def both(python: str, told: dict[str, Any], stack: ExitStack) -> list[Contender]:
    """Ours and theirs, loaded."""
    return [
        stack.enter_context(Contender("ours", sys.executable, "our_population.py", told)),
        stack.enter_context(Contender("agilerl", python, "agilerl_population.py", told)),
    ]


def speed(python: str, model: str, members: int, repeats: int) -> None:
    """CPU seconds of an iteration, of evolution without and with its evaluation, and of a generation."""
    with ExitStack() as stack:
        contenders = both(python, settings(model, members, SPEED), stack)
        iteration = in_turn(contenders, "iterate", repeats=repeats)
        assert iteration["ours"]["tokens"] == iteration["agilerl"]["tokens"], iteration
        _row(f"N={members} iteration, {iteration['ours']['tokens']} tokens", iteration)
        if members == 1:
            return
        evaluation = in_turn(contenders, "evaluate", repeats=repeats, rows=EVAL_ROWS)
        evolution: dict[str, dict[str, Any]] = {}
        for each in contenders:  # one more evaluation before each, as selection needs a fresh fitness
            taken = []
            for _ in range(repeats):
                each.ask("evaluate", rows=EVAL_ROWS)
                taken.append(each.ask("evolve")["cpu_s"])
            evolution[each.name] = {"cpu_s": sorted(taken)[len(taken) // 2]}
        _row(f"N={members} evolution", evolution)
        _row(f"N={members} evolution and evaluation", _added((1, evolution), (1, evaluation)))
        _row(
            f"N={members} generation of {GENERATION} iterations",
            _added((GENERATION, iteration), (1, evolution), (1, evaluation)),
        )


def memory(python: str, model: str, members: int, sizes: dict[str, int]) -> None:
    """Bytes held, and the largest resident memory of two iterations with an evolution between them."""
    with ExitStack() as stack:
        figures: dict[str, dict[str, Any]] = {}
        evolution: dict[str, dict[str, Any]] = {}
        for each in both(python, settings(model, members, sizes), stack):
            each.ask("iterate")
            if members > 1:
                each.ask("evaluate", rows=1)
                evolution[each.name] = each.ask("evolve")
            figures[each.name] = each.ask("iterate") | each.ask("sizes")
        _row(f"N={members} parameters + optimizer, MiB", figures, key="bytes", scale=2**20)
        _row(f"N={members} peak RSS, MiB", figures, key="peak_mib")
        if members > 1:
            _row(f"N={members} evolution (one)", evolution)


def _added(*parts: tuple[int, dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    names = parts[0][1]
    return {name: {"cpu_s": sum(times * part[name]["cpu_s"] for times, part in parts)} for name in names}


def _row(what: str, figures: dict[str, dict[str, Any]], *, key: str = "cpu_s", scale: float = 1.0) -> None:
    ours, theirs = figures["ours"][key] / scale, figures["agilerl"][key] / scale
    print(f"| {what} | {ours:.4g} | {theirs:.4g} | {theirs / ours:.1f} x |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=PYTHON, help="an interpreter that has agilerl 2.58")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens-per-backward", type=int, default=MEMORY["tokens_per_backward"])
    parser.add_argument("--only", choices=("speed", "memory"))
    options = parser.parse_args(arguments)
    if options.only != "memory":
        _speeds(options)
    if options.only != "speed":
        sizes = MEMORY | {"tokens_per_backward": options.tokens_per_backward}
        print("\n| 56 M parameters, 2 prompts x 2 x 8 | ours | agilerl | ratio |\n|---|---|---|---|")
        with made(MIDDLE) as model:
            for members in options.members:
                memory(options.python, model, members, sizes)


def _speeds(options: argparse.Namespace) -> None:
    print("| 0.8 M parameters, 4 prompts x 4 x 32, CPU-s | ours | agilerl | ratio |\n|---|---|---|---|")
    with made(TINY) as model:
        for members in options.members:
            speed(options.python, model, members, options.repeats)


if __name__ == "__main__":
    main()
