"""Tensor functions every algorithm shares; axes are named by suffix: T fed tokens, K predicted tokens, V vocabulary.

`logprobs` runs one pack through the model and returns one number per predicted token. The head never keeps
tokens x vocabulary: it walks over chunks of tokens and keeps the gradient of each logprob with respect to its
own hidden state, which is as small as the hidden states and makes the backward pass one multiplication.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from arena_runner import seeds
from arena_runner.adapters import OFF, Population
from arena_runner.attention import PackLayout
from arena_runner.models import BaseModel
from arena_runner.packing import Pack

CHUNK = {"cpu": 128, "cuda": 2048}
"""tokens whose logits exist at one moment; on a CPU they should stay in its cache"""


def logprobs(
    base: BaseModel,
    population: Population | None,
    pack: Pack,
    temperature_K: Tensor,
    *,
    reference: bool = False,
    dropout: tuple[float, Tensor] | None = None,
    padded: bool = False,
) -> Tensor:
    """Log-probability of every target of a pack under the softmax at its temperature.

    Args:
        base: the model.
        population: its adapters, or None for the base alone.
        pack: what to feed and to predict.
        temperature_K: sampling temperature of each target's row.
        reference: use the policy the experiment started from instead of each token's member.
        dropout: rate and one key per fed token (SFT and DPO only; needs the packed path).
        padded: take the plain path, one row per completion, even where packing is possible.

    Returns:
        fp32 (or wider) tensor (K,).
    """
    members_T = pack.members
    if reference:
        members_T = torch.full_like(members_T, population.reference if population else OFF)
    if padded or not base.packs:
        base.paths.padded += pack.tokens
        hidden_Kd = _padded_hidden(base, population, pack, members_T)
    else:
        base.paths.packed += pack.tokens
        hidden_Kd = _packed_hidden(base, population, pack, members_T, dropout)
    return head_logprobs(hidden_Kd, base.head.weight, pack.targets, temperature_K, bias=base.head.bias)


def dropout(pack: Pack, rates: Mapping[int, float], key: int) -> tuple[float, Tensor] | None:
    """What `logprobs` takes: the highest rate, and one key per fed token from (update, row, position).

    So packing changes no mask, and no state has to be saved. None when nobody drops anything.
    """
    rate = max(rates.values(), default=0.0)
    if rate == 0.0:
        return None
    keys = [
        seeds.mix_tensor(
            torch.full((segment.stop - segment.start,), seeds.key(key, group.rows[0])),
            torch.arange(segment.stop - segment.start),
        )
        for segment, group in zip(pack.segments, pack.groups, strict=True)
    ]
    return rate, torch.cat(keys).to(pack.input_ids.device)


def _packed_hidden(
    base: BaseModel,
    population: Population | None,
    pack: Pack,
    members_T: Tensor,
    dropout: tuple[float, Tensor] | None,
) -> Tensor:
    rows = population.rows(members_T, dropout=dropout) if population else None
    out = base.body(
        input_ids=pack.input_ids[None],
        position_ids=pack.position_ids[None],
        use_cache=False,
        arena_layout=PackLayout(pack),
        arena_rows=rows,
    )
    hidden: Tensor = out.last_hidden_state[0, pack.source]
    return hidden


def _padded_hidden(base: BaseModel, population: Population | None, pack: Pack, members_T: Tensor) -> Tensor:
    """One right-padded row per completion: prompts are computed G times, any architecture can do it."""
    texts: list[Tensor] = []
    members: list[Tensor] = []
    rows: list[int] = []
    columns: list[int] = []
    for segment, group in zip(pack.segments, pack.groups, strict=True):
        for completion in group.completions:
            rows += [len(texts)] * len(completion)
            columns += range(segment.prompt - 1, segment.prompt - 1 + len(completion))
            texts.append(torch.tensor(group.prompt_ids + completion[:-1], device=base.device))
            members.append(members_T[segment.start])
    input_ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=base.pad_id)
    real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(t) for t in texts], batch_first=True)
    carried = torch.stack(members)[:, None].expand_as(input_ids)
    out = base.body(
        input_ids=input_ids,
        attention_mask=real,
        use_cache=False,
        arena_rows=population.rows(carried.reshape(-1)) if population else None,
    )
    hidden: Tensor = out.last_hidden_state[rows, columns]
    return hidden


def head_logprobs(
    hidden_Kd: Tensor,
    weight_Vd: Tensor,
    targets_K: Tensor,
    temperature_K: Tensor,
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """Log softmax(hidden W^T / temperature) at the targets, in chunks; the head itself is frozen."""
    logp: Tensor = _HeadLogprobs.apply(hidden_Kd, weight_Vd, bias, targets_K, temperature_K)  # type: ignore[no-untyped-call] # torch leaves it untyped
    return logp


class _HeadLogprobs(torch.autograd.Function):
    """Saved for backward: d logp_k / d hidden_k, (K, d) in the compute dtype, and nothing else."""

    @staticmethod
    def forward(  # noqa: PLR0917 - torch passes them by position
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: Tensor
    ) -> Tensor:
        wide = torch.promote_types(torch.float32, hidden.dtype)
        logp = torch.empty(hidden.shape[0], dtype=wide, device=hidden.device)
        slope = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        chunk = CHUNK[hidden.device.type]
        for at in range(0, hidden.shape[0], chunk):
            part = slice(at, at + chunk)
            heat, target = temperature[part, None].to(wide), targets[part, None]
            logits = torch.nn.functional.linear(hidden[part], weight, bias).to(wide).div_(heat)
            top, chosen = logits.amax(-1, keepdim=True), logits.gather(1, target)
            mass = logits.sub_(top).exp_()
            total = mass.sum(-1, keepdim=True)
            logp[part] = (chosen - top - total.log())[:, 0]
            if slope is not None:
                # d logp / d logits = (one-hot - softmax) / temperature
                mass.mul_(-1 / (total * heat)).scatter_add_(1, target, 1 / heat)
                slope[part] = mass.to(weight.dtype) @ weight
        if slope is not None:
            ctx.save_for_backward(slope)
        return logp

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (slope,) = ctx.saved_tensors
        return (slope * grad[:, None]).to(slope.dtype), None, None, None, None
