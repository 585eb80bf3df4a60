"""DPO: of two answers to one prompt, make the chosen likelier than the rejected (Rafailov et al., arXiv 2305.18290)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.knobs import TextKnobs
from arena_gitops.spec.numbers import Float


class DpoKnobs(TextKnobs):
    """Knobs of direct preference optimisation; `batch_size` counts pairs per iteration of a member."""

    ALGORITHM: ClassVar[str] = "DPO"
    MUTABLE: ClassVar[tuple[str, ...]] = (
        "batch_size",
        "beta",
        "label_smoothing",
        "lr",
        "max_grad_norm",
        "nll_alpha",
        "update_epochs",
    )

    name: Literal["DPO"] = "DPO"
    lr: Annotated[Float, Field(ge=0)] = 5e-6
    beta: Annotated[Float, Field(gt=0, le=1)] = 0.1
    """how much a difference of log-ratios counts; 0 would leave nothing to learn"""
    nll_alpha: Annotated[Float, Field(ge=0)] = 1.0
    """weight of the chosen answer's mean negative log-likelihood beside the preference; 0 is plain DPO"""
    label_smoothing: Annotated[Float, Field(ge=0, lt=0.5)] = 0.0
    """share of pairs whose labels are taken to be the wrong way round (conservative DPO)"""
