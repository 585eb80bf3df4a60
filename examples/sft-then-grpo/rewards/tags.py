"""One point for the right number inside <answer> tags, one for the whole format."""

import re

FORMAT = re.compile(r"\s*<think>.*?</think>\n<answer>.*?</answer>\s*", re.DOTALL)


def reward(question: str, answer: str, completion: str) -> dict[str, float]:
    """Score one completion."""
    gold = answer.rpartition("####")[2].strip()
    block = re.search(r"<answer>(.*?)</answer>", completion, re.DOTALL)
    return {
        "correctness": float(block is not None and block[1].strip() == gold),
        "format": float(FORMAT.fullmatch(completion) is not None),
    }
