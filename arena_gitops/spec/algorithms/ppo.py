"""PPO: a policy improved on its own rollouts, as far as a clip allows (Schulman et al., arXiv 1707.06347)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.classic_knobs import OnPolicyKnobs
from arena_gitops.spec.numbers import Bool, Int
from arena_gitops.spec.section import NotActedOn, Only


class PpoKnobs(OnPolicyKnobs):
    """Knobs of PPO without memory; `recurrent: true` is read as Recurrent PPO."""

    ALGORITHM: ClassVar[str] = "PPO"

    name: Literal["PPO"] = "PPO"

    recurrent: Annotated[Bool | None, Only(False, why="Recurrent PPO is an algorithm of its own")] = None
    max_seq_len: Annotated[Int | None, Field(ge=1), NotActedOn("only Recurrent PPO learns sequences")] = None
    bptt_sequence_type: Annotated[str | None, NotActedOn("only Recurrent PPO learns sequences")] = None
