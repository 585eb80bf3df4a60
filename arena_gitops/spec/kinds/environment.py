"""An environment: code of the repository that a policy acts in."""

from __future__ import annotations

from typing import Literal

from arena_gitops.spec.fields import Entrypoint, RepoPath
from arena_gitops.spec.numbers import Bool
from arena_gitops.spec.references import Referring


class Environment(Referring):
    """A custom environment, by its source and entry point."""

    kind: Literal["Environment"]
    source: RepoPath = "."
    """folder of the code, a Python file, or an archive; relative to the document"""
    entrypoint: Entrypoint | None = None
    """absent: the only environment there; an archive must name it"""
    multi_agent: Bool = False
    requirements: RepoPath | None = None
    """a requirements file; its own cached virtual environment"""
    config: RepoPath | None = None
    """an env_config file, handed to the constructor"""
