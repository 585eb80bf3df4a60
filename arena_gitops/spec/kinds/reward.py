"""A reward: the function that scores a completion, what it may use, and samples with their expected scores."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from arena_gitops.spec.fields import Identifier, PythonFile, SecretName
from arena_gitops.spec.job import RewardCase
from arena_gitops.spec.references import Referring


class Reward(Referring):
    """A Python function `(question, answer, completion) -> float`, run in the sandbox."""

    kind: Literal["Reward"]
    file: PythonFile
    """relative to the document"""
    function: Identifier = "reward"
    requirements: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """packages, one requirement each; their own cached virtual environment"""
    network: Literal["none", "full"] = "none"
    secrets: tuple[SecretName, ...] = ()
    """names only; values live on the server"""
    cases: tuple[RewardCase, ...] = ()
