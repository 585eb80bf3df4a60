"""One member on its own: its networks with their moments, out of any stack."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from arena_runner.policies.design import Design


@dataclass(frozen=True, slots=True)
class Net:
    """One network of one member."""

    design: Design
    flat: Tensor
    """(P,)"""
    mean: Tensor | None = None
    square: Tensor | None = None
    steps: Tensor | None = None
    """(1,); None for a network that no optimizer touches"""


Person = dict[str, Net]
"""role → network"""
