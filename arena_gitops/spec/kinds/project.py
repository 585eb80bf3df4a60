"""A project: where experiments are filed."""

from __future__ import annotations

from typing import Literal

from arena_gitops.spec.numbers import Bool
from arena_gitops.spec.references import Referring


class Project(Referring):
    """One project of the platform."""

    kind: Literal["Project"]
    llm_based: Bool = False
    """whether its runs train language models"""
