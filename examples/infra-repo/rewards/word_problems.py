"""Reward for word problems: the last number must be the right one, and shorter is better."""

import re

BREVITY_LIMIT = 200
"""A completion of this many characters or more earns nothing for brevity."""


def reward(question: str, answer: str, completion: str) -> dict[str, float]:
    """Score one completion; the parts are added up and logged one by one."""
    return {"correctness": correctness(answer, completion), "brevity": 0.5 * brevity(completion)}


def correctness(answer: str, completion: str) -> float:
    """1.0 when the completion's last number equals the number after ``####``."""
    gold = re.search(r"####\s*(-?[\d,]+)", answer)
    numbers = re.findall(r"-?\d[\d,]*", completion)
    if gold is None or not numbers:
        return 0.0
    return float(numbers[-1].replace(",", "") == gold.group(1).replace(",", ""))


def brevity(completion: str) -> float:
    """1.0 for an empty completion, falling evenly to 0.0 at the limit."""
    return max(0.0, 1.0 - len(completion.strip()) / BREVITY_LIMIT)
