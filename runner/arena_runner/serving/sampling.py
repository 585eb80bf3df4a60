"""Choose the next token of one row: greedy, or by temperature and nucleus with the row's own stream of numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from arena_runner import seeds
from arena_runner.serving.protocol import Params

FIRST_GUESS = 1024
"""tokens in which a nucleus is sought before the whole vocabulary is sorted"""


def choose(logits_V: Tensor, params: Params, key: int, position: int) -> int:
    """The next token; depends on logits, parameters, key and position only, never on other rows."""
    if not params.do_sample or params.temperature == 0:
        return int(logits_V.argmax())
    probabilities = torch.softmax(logits_V.double() / params.temperature, dim=-1)
    values, tokens = _nucleus(probabilities, params.top_p)
    draw = seeds.uniform(torch.tensor(key), torch.tensor(position)).to(values.device)
    cumulative = values.cumsum(0)
    index = int(torch.searchsorted(cumulative, draw * cumulative[-1], right=True))
    return int(tokens[min(index, len(tokens) - 1)])


def _nucleus(probabilities_V: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The fewest most likely tokens that hold `top_p` of the mass, most likely first."""
    if top_p >= 1:
        return probabilities_V, torch.arange(len(probabilities_V), device=probabilities_V.device)
    size = min(FIRST_GUESS, len(probabilities_V))
    values, tokens = probabilities_V.topk(size)
    if float(values.sum()) < top_p and size < len(probabilities_V):
        values, tokens = probabilities_V.sort(descending=True)
    before = values.cumsum(0) - values
    keep = before < top_p
    return values[keep], tokens[keep]
