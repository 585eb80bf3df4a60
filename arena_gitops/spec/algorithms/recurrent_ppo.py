"""Recurrent PPO: PPO whose policy remembers; learned on sequences that start from the memory they were acted with."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.classic_knobs import OnPolicyKnobs
from arena_gitops.spec.numbers import Bool, Int
from arena_gitops.spec.section import Only


class RecurrentPpoKnobs(OnPolicyKnobs):
    """Knobs of PPO with memory; `batch_size` counts transitions, in whole sequences."""

    ALGORITHM: ClassVar[str] = "Recurrent PPO"

    name: Literal["Recurrent PPO"] = "Recurrent PPO"
    learn_step: Annotated[Int, Field(ge=1)] = 8192
    max_seq_len: Annotated[Int, Field(ge=1)] | None = None
    """longest sequence that is learned as one; absent: 16"""

    recurrent: Annotated[Bool | None, Only(True, why="without memory it is PPO")] = None
    share_encoders: Annotated[Bool, Only(True, why="policy and value share one memory")] = True
    bptt_sequence_type: Annotated[
        Literal["chunked", "maximum", "fifty_percent_overlap"] | None,
        Only("chunked", why="sequences follow each other without overlap"),
    ] = None
