"""What is quicker than torch's own way gives what torch's own way gives."""

from __future__ import annotations

import pytest
import torch
from playground import drawn
from torch.nn import functional

from arena_runner.policies.normed import normed
from arena_runner.policies.products import LARGE, exact, quick_products


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_a_layer_norm_and_its_gradient_are_torchs(relu, dtype, near):
    x = (3 + 5 * drawn(3, 7, 10)).to(dtype)
    scale, shift, wanted = (
        drawn(3, 10, seed=1).to(dtype),
        drawn(3, 10, seed=2).to(dtype),
        drawn(3, 7, 10, seed=3),
    )
    leaves = [one.requires_grad_() for one in (x, scale, shift)]

    ours = normed(x, scale, shift, relu=relu)
    rows = zip(x, scale, shift, strict=True)
    theirs = torch.stack([functional.layer_norm(one, (10,), by, to) for one, by, to in rows])
    theirs = theirs.relu() if relu else theirs

    assert torch.allclose(ours, theirs, atol=near)
    gradients = [torch.autograd.grad((out * wanted).sum(), leaves) for out in (ours, theirs)]
    for mine, other in zip(*gradients, strict=True):
        assert torch.allclose(mine, other, atol=near)


def test_quick_products_are_products_of_fp32_and_the_switch_goes_back():
    before = torch.get_float32_matmul_precision()

    with quick_products(LARGE):
        assert exact()

    assert torch.get_float32_matmul_precision() == before


def test_where_factors_would_be_rounded_nothing_is_switched():
    before = torch.get_float32_matmul_precision()

    with quick_products(LARGE, proof=lambda: False):
        assert torch.get_float32_matmul_precision() == before


def test_small_networks_stay_with_torchs_own():
    before = torch.get_float32_matmul_precision()

    with quick_products(LARGE - 1):
        assert torch.get_float32_matmul_precision() == before
