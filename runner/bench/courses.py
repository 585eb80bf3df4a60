"""What `learns.py` teaches: rows to imitate, rows to try, rows nobody trains on, and the manifests of both lessons.

`gsm8k` takes the shared copy of the data set (`--data`, else our generated word problems stand in for it);
`arithmetic` makes its problems by seed. Both rewards have two parts, correctness and format, as the tutorial's.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REWARD = EXAMPLES / "gsm8k-tutorial/rewards/gsm8k.py"
MODEL = "smollm2-135m-instruct"
SHOWN_ROWS = 200
"""formatted rows that SFT may see"""
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
LORA = {"lora_r": 16, "lora_alpha": 32, "target_modules": list(TARGETS), "lora_dropout": 0.0}
SYSTEM = "Think about the problem step by step, then give the final number."

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Course:
    """One data set, cut, and the sizes that fit it."""

    shown: Sequence[Row]
    """formatted rows to imitate: prompt, target"""
    practice: Sequence[Row]
    """questions to try"""
    exam: Sequence[Row]
    """questions of the exam"""
    room: int
    """tokens of a completion"""
    batch_size: int
    sft_lr: float
    lr: float


def gsm8k(data: Path, exam_rows: int) -> Course:
    """The shared data set; SFT sees the 200 first rows with short worked answers."""
    train, test = _read(data / "train.jsonl"), _read(data / "test.jsonl")
    short = [row for row in train if len(row["answer"]) <= 200]
    shown, rest = short[:SHOWN_ROWS], short[SHOWN_ROWS:]
    return Course([_formatted(row) for row in shown], rest, test[:exam_rows], 80, 2, 3e-4, 3e-4)


def arithmetic(seed: int, exam_rows: int) -> Course:
    """Generated word problems of one or two steps; worked answers of one line."""
    made = _module(EXAMPLES / "infra-repo/scripts/make_word_problems.py").problems(2_400, seed)
    rows = [{"question": question, "answer": answer} for question, answer in made]
    shown, rest = rows[:SHOWN_ROWS], rows[SHOWN_ROWS:]
    return Course([_formatted(row) for row in shown], rest[exam_rows:], rest[:exam_rows], 40, 8, 3e-4, 3e-4)


def sft(course: Course, rows: int, *, every: int, lr: float | None = None) -> dict[str, Any]:
    """The manifest of imitation: one member, exported every `every` iterations of 4 rows."""
    return {
        "algorithm": {"name": "SFT", "batch_size": 4, "lr": lr or course.sft_lr, "max_grad_norm": 1.0},
        "environment": _environment("prompt"),
        "training": {
            "max_steps": rows,
            "evo_steps": every,
            "checkpoint_steps": every,
            "pop_size": 1,
            "hpo": False,
            "eval_rows": 1,  # of no use here: exams decide
            "test_rows": 0,
        },
        "mutation": {"rand_seed": 42},
        "network": _network(course),
    }


def grpo(course: Course, members: int, *, every: int, seed: int) -> dict[str, Any]:
    """The manifest of practice: a population with evolution, or one member without."""
    return {
        "algorithm": {
            "name": "GRPO",
            "batch_size": course.batch_size,
            "group_size": 8,
            "lr": course.lr,
            "beta": 0.001,
            "max_grad_norm": 1.0,
            "temperature": 1.0,
            "max_output_tokens": course.room,
        },
        "environment": _environment("question"),
        "training": {
            "max_steps": 1_000_000,
            "evo_steps": every,
            "checkpoint_steps": every,
            "pop_size": members,
            "hpo": members > 1,
            "eval_rows": 24,
            "test_rows": 0,
        },
        "mutation": {
            "rand_seed": seed,
            "probabilities": {"no_mut": 0.2, "rl_hp_mut": 0.8},
            "rl_hp_selection": {"lr": {"min": 1e-4, "max": 1e-3}, "beta": {"min": 1e-4, "max": 1e-2}},
        },
        "tournament_selection": {"tournament_size": 2, "elitism": True},
        "network": _network(course),
    }


def template(role: str) -> dict[str, str]:
    """The prompt of both lessons; the model goes on after `<think>`, as in the tutorial."""
    return {"system_0": SYSTEM, "user_1": "{" + role + "}", "assistant_2": "<think>"}


def score() -> Callable[[str, str, str], dict[str, float]]:
    """The tutorial's reward, for exams."""
    reward: Callable[[str, str, str], dict[str, float]] = _module(REWARD).reward
    return reward


def write(rows: Sequence[Row], path: Path) -> Path:
    """As JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def _environment(role: str) -> dict[str, Any]:
    return {"name": "course", "prompt_template": template(role)}


def _network(course: Course) -> dict[str, Any]:
    return {
        "pretrained_model_name_or_path": MODEL,
        "max_context_length": 256 + course.room,
        "lora_config": LORA,
    }


def _formatted(row: Row) -> Row:
    worked, _, number = re.sub(r"<<.*?>>", "", row["answer"]).partition("\n#### ")
    return {"prompt": row["question"], "target": f"{worked}</think>\n<answer>{number}</answer>"}


def _read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
