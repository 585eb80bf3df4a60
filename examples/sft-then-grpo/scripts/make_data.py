"""Write data/sums_sft.csv (prompt, target) and data/sums.csv (question, answer): small sums, different rows in each."""

from __future__ import annotations

import csv
import random
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"


def sums(count: int, seed: int) -> list[tuple[str, str, str]]:
    """`count` different (question, work, result) triples."""
    rng = random.Random(seed)
    pairs = [(a, b) for a in range(2, 50) for b in range(2, 50)]
    chosen = rng.sample(pairs, count)
    return [(f"What is {a} plus {b}?", f"{a} + {b} = {a + b}", str(a + b)) for a, b in chosen]


def write(name: str, header: tuple[str, str], rows: list[tuple[str, str]]) -> None:
    """One CSV with LF line ends."""
    with (DATA / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main() -> None:
    """The first 160 sums are shown to SFT, the other 400 are left to GRPO."""
    rows = sums(560, seed=11)
    taught, asked = rows[:160], rows[160:]
    write(
        "sums_sft.csv",
        ("prompt", "target"),
        [(q, f"<think>{work}</think>\n<answer>{result}</answer>") for q, work, result in taught],
    )
    write("sums.csv", ("question", "answer"), [(q, f"{work}\n#### {result}") for q, work, result in asked])


if __name__ == "__main__":
    main()
