"""GRPO: groups of completions, scored, compared with their own mean (training.md §6 holds the loss).

Shao et al., DeepSeekMath, arXiv 2402.03300.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from arena_gitops.spec.knobs import GroupKnobs


class GrpoKnobs(GroupKnobs):
    """The family's defaults as they stand."""

    ALGORITHM: ClassVar[str] = "GRPO"

    name: Literal["GRPO"] = "GRPO"
