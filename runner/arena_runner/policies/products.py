"""Products of fp32 matrices by the library that is quick on this processor.

torch gives them to MKL, which leaves AVX-512 alone on processors that are not Intel's, and to oneDNN where the precision
`medium` is allowed: that takes half the time there, if the matrices are not small. `medium` also allows factors to be
rounded to bf16, which oneDNN does on processors with AMX. So a product is tried, and nothing is rounded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

LARGE = 2 * 128 * 128
"""weights of a network from which on its products gain more than oneDNN's longer way to them costs"""


def exact() -> bool:
    """Whether products of fp32 are off by what fp32 is, and not by a thousand times as much."""
    a, b = torch.randn(2, 2, 128, 128, generator=torch.Generator().manual_seed(0))
    wanted = torch.bmm(a.double(), b.double())
    return bool((torch.bmm(a, b) - wanted).norm() < 1e-5 * wanted.norm())


@contextmanager
def quick_products(weights: int, proof: Callable[[], bool] = exact) -> Iterator[None]:
    """For networks of so many weights; a switch of the whole process."""
    before = torch.get_float32_matmul_precision()
    try:
        if weights >= LARGE:
            torch.set_float32_matmul_precision("medium")
            if not proof():
                torch.set_float32_matmul_precision(before)
        yield
    finally:
        torch.set_float32_matmul_precision(before)
