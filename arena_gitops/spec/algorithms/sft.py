"""SFT: cross-entropy on the target's tokens; `batch_size` counts rows per iteration of a member."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.knobs import TextKnobs
from arena_gitops.spec.numbers import Float
from arena_gitops.spec.section import NotActedOn


class SftKnobs(TextKnobs):
    """Knobs of supervised fine-tuning."""

    ALGORITHM: ClassVar[str] = "SFT"
    MUTABLE: ClassVar[tuple[str, ...]] = ("batch_size", "lr", "max_grad_norm", "update_epochs")

    name: Literal["SFT"] = "SFT"
    lr: Annotated[Float, Field(ge=0)] = 5e-5

    beta: Annotated[Float | None, Field(ge=0, le=1), NotActedOn("SFT has no reference to stay near to")] = (
        None
    )
