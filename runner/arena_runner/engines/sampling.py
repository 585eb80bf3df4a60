"""Choosing the next token: inverse CDF with one uniform per row, or the most likely token.

The uniform comes from the row's own stream (`seeds.uniform`), so that a row's randomness does not depend on
who shares its batch. The vocabulary is searched in two levels, blocks first, which replaces a running sum
over all of it by plain sums: the difference between 3 ms and 1 ms a step at 64 rows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 256
ROWS = {"cpu": 16, "cuda": 4096}
"""rows worked on at one moment; on a CPU their probabilities should stay in its cache"""


def choose(
    logits_BV: Tensor, temperature_B: Tensor, uniform_B: Tensor, greedy_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Pick one token per row.

    Args:
        logits_BV: of the head, any float type.
        temperature_B: sampling temperature; ignored by greedy rows.
        uniform_B: float64 in [0, 1).
        greedy_B: bool, rows that take the most likely token.

    Returns:
        Tokens (B,) and their fp32 logprobs (B,) under the softmax over the whole vocabulary at the sampling
        temperature (1 for greedy rows).
    """
    step = ROWS[logits_BV.device.type]
    parts = [slice(at, at + step) for at in range(0, logits_BV.shape[0], step)]
    picked = [_choose(logits_BV[p], temperature_B[p], uniform_B[p], greedy_B[p]) for p in parts]
    tokens, logprobs = zip(*picked, strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _choose(logits: Tensor, temperature: Tensor, uniform: Tensor, greedy: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(torch.float32, logits.dtype)
    heat = torch.where(greedy, 1.0, temperature).to(wide)[:, None]
    scaled = logits.to(wide, copy=True)
    if bool((heat != 1).any()):
        scaled.div_(heat)
    top, best = scaled.max(-1, keepdim=True)
    mass = scaled.sub_(top).exp_()  # (B, V)
    missing = -mass.shape[1] % BLOCK
    blocks = (pad(mass, (0, missing)) if missing else mass).unflatten(1, (-1, BLOCK))
    sums = blocks.sum(-1).double()  # (B, V / BLOCK)
    token = best[:, 0]
    if not bool(greedy.all()):
        token = torch.where(greedy, token, _search(blocks, sums, uniform))
    token = token.clamp(max=mass.shape[1] - 1)
    share = mass.gather(1, token[:, None])[:, 0].double() / sums.sum(-1)
    return token, share.log().to(wide)


def _search(blocks: Tensor, sums: Tensor, uniform_B: Tensor) -> Tensor:
    """First token whose running sum exceeds uniform times the total."""
    edges = sums.cumsum(-1)
    target = _below(uniform_B * edges[:, -1], edges[:, -1])
    block = torch.searchsorted(edges, target[:, None], right=True)  # (B, 1)
    block = block.clamp(max=edges.shape[1] - 1)  # of a member that has diverged: nothing exceeds NaN
    before = torch.where(block > 0, edges.gather(1, (block - 1).clamp(min=0)), 0.0)[:, 0]
    row = torch.arange(blocks.shape[0], device=blocks.device)
    inside = blocks[row, block[:, 0]].double().cumsum(-1)  # (B, BLOCK)
    rest = _below(target - before, inside[:, -1])
    return block[:, 0] * BLOCK + torch.searchsorted(inside, rest[:, None], right=True)[:, 0]


def _below(value: Tensor, limit: Tensor) -> Tensor:
    """Keep a rounded product inside its half-open interval, so that no token of mass zero is ever found."""
    return value.clamp(min=0.0).minimum(limit * (1 - 1e-15))
