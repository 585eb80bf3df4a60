"""The interpreter of a custom environment: ours where it has what the environment requires, else one of its own.

An environment of its own also gets the libraries that its checks and its steps need. On the server's own machine those
are of the versions that are installed here; elsewhere the server has resolved everything together.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from arena_gitops.spec.job import EnvironmentInput
from arena_runner.sandbox.packages import Wheels, python_with

WHOSE, ENTRY = "the environment", "requirements.txt"


def own_python(environment: EnvironmentInput, wheels: Wheels | None = None) -> Path:
    """The interpreter; RewardError when its packages cannot be had."""
    wanted = with_libraries(environment)
    if wheels is not None and wanted:
        wanted = complete(environment)
    return python_with(wanted, entry=ENTRY, whose=WHOSE, wheels=wheels) or Path(sys.executable)


def with_libraries(environment: EnvironmentInput) -> tuple[str, ...]:
    """What an interpreter of its own must have; nothing when this installation has it all.

    The library of its check is added at this installation's version, unless the requirements name one.
    """
    if all(_here(one) for one in environment.requirements):
        return ()
    missing = complete(environment)[len(environment.requirements) :]
    return (*environment.requirements, *filter(None, (_ours(name) for name in missing)))


def complete(environment: EnvironmentInput) -> tuple[str, ...]:
    """What it requires and the libraries beside it, of any version that fits; nothing when it requires nothing."""
    if not environment.requirements:
        return ()
    named = {_name(one) for one in environment.requirements}
    libraries = ("gymnasium", *(("pettingzoo",) if environment.multi_agent else ()))
    return (*environment.requirements, *(name for name in libraries if name not in named))


def _name(requirement: str) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        return requirement


def _here(requirement: str) -> bool:
    """Whether this installation satisfies a requirement; one that cannot be read is left to the installer."""
    try:
        wanted = Requirement(requirement)
        if wanted.extras or (wanted.marker is not None and not wanted.marker.evaluate()):
            return not wanted.extras
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except (InvalidRequirement, PackageNotFoundError):
        return False


def _ours(name: str) -> str:
    try:
        return f"{name}=={version(name)}"
    except PackageNotFoundError:
        return ""
