"""Write data/word_problems.csv: grade-school word problems with worked answers that end in `#### number`.

Deterministic: the same count and seed give the same bytes, so the dataset's digest is stable.

    python scripts/make_word_problems.py --rows 900 --seed 7
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Callable
from pathlib import Path

NAMES = [
    "Ada",
    "Ben",
    "Chloe",
    "Dario",
    "Elif",
    "Femi",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Kira",
    "Liam",
    "Mara",
    "Nils",
    "Oona",
    "Pavel",
    "Quinn",
    "Rosa",
    "Samir",
    "Tess",
    "Uma",
    "Viktor",
    "Wren",
    "Xenia",
    "Yara",
    "Zeno",
]
THINGS = [
    "apples",
    "pencils",
    "marbles",
    "stickers",
    "cookies",
    "books",
    "shells",
    "coins",
    "stamps",
    "balloons",
    "carrots",
    "buttons",
    "eggs",
    "cards",
    "flowers",
    "oranges",
]
PLACES = ["market", "school", "garden", "park", "library", "beach"]

Problem = tuple[str, str, int]


def gain(rng: random.Random) -> Problem:
    """One addition."""
    name, thing, place = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
    have, more = rng.randint(2, 20), rng.randint(2, 20)
    question = (
        f"{name} has {have} {thing}. At the {place} {name} gets {more} more {thing}. "
        f"How many {thing} does {name} have now?"
    )
    return question, f"{have} + {more} = {have + more}", have + more


def loss(rng: random.Random) -> Problem:
    """One subtraction."""
    name, friend = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    have = rng.randint(6, 30)
    given = rng.randint(1, have - 2)
    question = (
        f"{name} has {have} {thing} and gives {given} of them to {friend}. "
        f"How many {thing} does {name} have left?"
    )
    return question, f"{have} - {given} = {have - given}", have - given


def groups(rng: random.Random) -> Problem:
    """One multiplication."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    bags, each = rng.randint(2, 9), rng.randint(2, 9)
    question = f"{name} packs {bags} bags with {each} {thing} in each bag. How many {thing} does {name} pack in total?"
    return question, f"{bags} x {each} = {bags * each}", bags * each


def share(rng: random.Random) -> Problem:
    """One division without a remainder."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    friends, each = rng.randint(2, 6), rng.randint(2, 9)
    total = friends * each
    question = (
        f"{name} shares {total} {thing} equally among {friends} friends. "
        f"How many {thing} does each friend get?"
    )
    return question, f"{total} / {friends} = {each}", each


def two_steps(rng: random.Random) -> Problem:
    """An addition, then a subtraction."""
    name, friend = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    have, more = rng.randint(3, 15), rng.randint(3, 15)
    given = rng.randint(1, have + more - 1)
    left = have + more - given
    question = (
        f"{name} has {have} {thing} and buys {more} more. Then {name} gives {given} {thing} to {friend}. "
        f"How many {thing} does {name} have left?"
    )
    return question, f"{have} + {more} - {given} = {left}", left


KINDS: tuple[Callable[[random.Random], Problem], ...] = (gain, loss, groups, share, two_steps)


def problems(rows: int, seed: int) -> list[tuple[str, str]]:
    """`rows` different problems as (question, answer)."""
    rng = random.Random(seed)
    seen: dict[str, str] = {}
    while len(seen) < rows:
        question, work, result = KINDS[len(seen) % len(KINDS)](rng)
        seen.setdefault(question, f"{work}\n#### {result}")
    return list(seen.items())


def main() -> None:
    """Write the file beside this repository's datasets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=900)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).resolve().parent.parent / "data" / "word_problems.csv"
    )
    options = parser.parse_args()
    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("question", "answer"))
        writer.writerows(problems(options.rows, options.seed))
    print(f"{options.out}: {options.rows} rows")


if __name__ == "__main__":
    main()
