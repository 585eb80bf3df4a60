"""One attention function for every architecture: `arena`, registered through transformers' AttentionInterface.

A forward that passes `arena_layout` decides itself who sees whom (a shared-prefix pack here, a cache of keys
and values in the engine). Without one it is plain causal attention over right-padded rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

from arena_runner import cpu_attention
from arena_runner.packing import Pack, Segment

NAME = "arena"


class Heads(NamedTuple):
    """What one attention layer works on; H query heads share Hkv key heads."""

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, Hkv, T, D)
    v: Tensor  # (B, Hkv, T, D)
    scale: float
    window: int | None
    """how many positions back a query sees, or None for all"""


class Layout(Protocol):
    """Who sees whom in one forward."""

    def attend(self, layer: int, heads: Heads) -> Tensor:
        """Attend in one layer; same shape as `heads.q`."""
        ...


def arena_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    arena_layout: Layout | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as the layout says; (B, H, T, D) in, (B, T, H, D) out."""
    if arena_layout is None:
        heads = Heads(query, key, value, scaling, sliding_window)
        if attention_mask is None:
            out = causal(query, key, value, heads)
        else:
            out = sdpa(query, key, value, attention_mask, scale=scaling, enable_gqa=True)
    else:
        out = arena_layout.attend(int(module.layer_idx), Heads(query, key, value, scaling, sliding_window))  # type: ignore[arg-type] # every attention module of transformers has one
    return out.transpose(1, 2), None


def _register() -> None:
    """Load transformers' models as where there is no scipy: only losses for object detection want it, and its 34 MiB."""
    from transformers import utils

    known, utils.is_scipy_available = utils.is_scipy_available, lambda: False
    try:
        from transformers import AttentionInterface
    finally:
        utils.is_scipy_available = known
    AttentionInterface.register(NAME, arena_attention)


_register()


def install(model: Any) -> bool:
    """Make a model use `arena`; False when its attention needs more than queries, keys and values.

    Such a model (softcap, attention sinks, linear attention, state space) keeps its own attention and takes
    the padded path in training.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    odd = getattr(config, "attn_logit_softcapping", None) or any(
        hasattr(module, "sinks") for module in model.modules()
    )
    if odd or not kinds <= {"full_attention", "sliding_attention"} or not model._supports_attention_backend:  # noqa: SLF001 - transformers' own flag, no public twin
        return False
    model.set_attn_implementation(NAME)
    return True


class PackLayout:
    """A shared-prefix pack in two attention calls a layer and group, without any mask over the whole pack.

    The prompt is causal over itself; completions are G rows of queries over `[prompt, own]`, causal from the
    lower right. Rows are padded at their end, where nothing real looks.
    """

    def __init__(self, pack: Pack) -> None:
        self._segments = [_Completions(segment, pack.input_ids.device) for segment in pack.segments]

    def attend(self, layer: int, heads: Heads) -> Tensor:
        """See `Layout`."""
        outs = []
        for part in self._segments:
            s = part.segment
            q, k, v = (x[:, :, s.start : s.start + s.prompt] for x in heads[:3])
            outs.append(causal(q, k, v, heads))
            if part.longest:
                outs.append(part.attend(heads))
        return torch.cat(outs, dim=2)


class _Completions:
    """Index tables that unfold one group's completions to padded rows and back."""

    def __init__(self, segment: Segment, device: torch.device) -> None:
        self.segment = segment
        self.longest = max(segment.inputs, default=0)
        rows: list[int] = []
        flat: list[int] = []
        at = segment.start + segment.prompt
        for g, length in enumerate(segment.inputs):
            rows += [*range(at, at + length), *[segment.start] * (self.longest - length)]
            flat += range(g * self.longest, g * self.longest + length)
            at += length
        self._rows = torch.tensor(rows, device=device, dtype=torch.long)  # (G * Lmax,) into the pack
        self._flat = torch.tensor(flat, device=device, dtype=torch.long)  # (tokens,) into the padded rows

    def attend(self, heads: Heads) -> Tensor:
        """(1, H, T, D) of the whole pack → (1, H, tokens of these completions, D)."""
        k, v = (torch.cat([self._prompt(x), self._unfold(x)], dim=2) for x in (heads.k, heads.v))
        out = causal(self._unfold(heads.q), k, v, heads)  # (G, H, Lmax, D)
        return out.transpose(0, 1).flatten(1, 2).index_select(1, self._flat).unsqueeze(0)

    def _unfold(self, x: Tensor) -> Tensor:
        """(1, H, T, D) → (G, H, Lmax, D)."""
        rows = x[0].index_select(1, self._rows)
        return rows.view(x.shape[1], len(self.segment.inputs), self.longest, x.shape[3]).transpose(0, 1)

    def _prompt(self, x: Tensor) -> Tensor:
        """(1, H, T, D) → (G, H, P, D), without a copy."""
        s = self.segment
        return x[:, :, s.start : s.start + s.prompt].expand(len(s.inputs), -1, -1, -1)


def causal(q: Tensor, k: Tensor, v: Tensor, heads: Heads) -> Tensor:
    """Attend causally from the lower right, with the scale and window of `heads`, by the fastest exact way there is.

    q (B, H, L, D), k and v (B, Hkv, S, D) → (B, H, L, D).
    """
    if q.dtype is torch.bfloat16 and q.device.type == "cpu":
        return cpu_attention.attend(q, k, v, cpu_attention.Shape(heads.scale, heads.window))
    queries, keys = q.shape[2], k.shape[2]
    simple = heads.window is None or heads.window >= keys
    mask = None
    if not (simple and queries in {1, keys}):
        back = torch.arange(keys - queries, keys, device=q.device)[:, None] - torch.arange(
            keys, device=q.device
        )
        mask = (back >= 0) & (back < (heads.window or keys))
    return sdpa(q, k, v, mask, is_causal=mask is None and queries > 1, scale=heads.scale, enable_gqa=True)
