"""The bf16 CPU path against torch's own attention in fp32."""

import pytest
import torch
from populations import relative
from torch.nn.functional import scaled_dot_product_attention

from arena_runner import cpu_attention
from arena_runner.cpu_attention import Shape


@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(1, 7, None), (5, 5, None), (5, 9, 4), (9, 12, None)]
)
def test_it_is_causal_attention_with_its_gradients(monkeypatch, queries, keys, window):
    """In fp32, where both are exact; blocks of 4 queries, three query heads for each key head."""
    monkeypatch.setattr(cpu_attention, "BLOCK", 4)
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 6, queries, 8), (2, 2, keys, 8), (2, 2, keys, 8), (2, 6, queries, 8)]
    q, k, v, upstream = (torch.randn(s, generator=generator) for s in shapes)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    back = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    mask = (back >= 0) & (back < (window or keys))
    expected = scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)
    ours = cpu_attention.attend(q, k, v, Shape(0.3, window))
    theirs_grad = torch.autograd.grad(expected, inputs, upstream)
    ours_grad = torch.autograd.grad(ours, inputs, upstream)

    assert relative(ours, expected) <= 1e-6
    assert all(relative(a, b) <= 1e-5 for a, b in zip(ours_grad, theirs_grad, strict=True))


def test_bf16_is_as_near_to_fp32_as_torchs_own():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, h, 40, 16, generator=generator) for h in (6, 2, 2))
    exact = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    low = [x.bfloat16() for x in (q, k, v)]
    theirs = scaled_dot_product_attention(*low, is_causal=True, enable_gqa=True)
    ours = cpu_attention.attend(*low, Shape(0.25))

    assert relative(ours.float(), exact) <= 1.5 * relative(theirs.float(), exact)
