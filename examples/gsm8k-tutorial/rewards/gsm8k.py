"""Two points: the right number inside <answer>, and the <think>…</think> / <answer>…</answer> layout."""

import re

NUMBER = re.compile(r"-?\d[\d,]*")
LAYOUT = re.compile(r".*?</think>\n<answer>.*?</answer>", re.DOTALL)


def reward(question: str, answer: str, completion: str) -> dict[str, float]:
    """Score one completion; the prompt already ends in <think>."""
    return {"correctness": correctness(answer, completion), "format": layout(completion)}


def first_number(text: str) -> str | None:
    """The first number in a text, without thousands separators."""
    match = NUMBER.search(text)
    return match[0].replace(",", "") if match else None


def correctness(answer: str, completion: str) -> float:
    """1.0 when the number in the answer block is the number after ####."""
    gold = first_number(answer.rpartition("####")[2])
    block = re.search(r"<answer>(.*?)</answer>", completion, re.DOTALL)
    return float(block is not None and gold is not None and first_number(block[1]) == gold)


def layout(completion: str) -> float:
    """1.0 when nothing but the two blocks is there."""
    return float(LAYOUT.fullmatch(completion.strip().removeprefix("<think>")) is not None)
