"""A reward's own requirements: one cached virtual environment per list of requirements and Python version.

They come from the machine's package index, or from wheels that were resolved elsewhere and brought here; then no
index is asked, and the environment is theirs alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from arena_runner.sandbox.score import RewardError

DEFAULT_HOME = "~/.local/share/arena-gitops"

ARCHIVES = (".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz")
"""An installer takes a word that ends so for a file, if there is one."""


@dataclass(frozen=True, slots=True)
class Wheels:
    """Everything a list of requirements needs, as wheels in one folder."""

    folder: Path
    digest: str
    """over names and bytes of the wheels"""


def odd_one(requirements: tuple[str, ...]) -> str | None:
    """The first that is not the name of a package (with versions, extras, markers); None when all are.

    An installer that is given a folder or the address of an archive builds it, also when told to take wheels only:
    whose code that is would run outside the sandbox.
    """
    for text in requirements:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            return text
        if wanted.url is not None or wanted.name.lower().endswith(ARCHIVES):
            return text
    return None


def python_with(
    requirements: tuple[str, ...], *, entry: str, whose: str = "the reward", wheels: Wheels | None = None
) -> Path | None:
    """The interpreter that has `requirements`, built on first use; None when there are none.

    Only wheels are installed: building a source package would run its code outside the sandbox.
    """
    if not requirements:
        return None
    if (odd := odd_one(requirements)) is not None:
        expected = "expected packages of an index by name, as in `sympy>=1.12`"
        raise RewardError(f"{whose}'s requirement {odd!r} is not taken: {expected}", entry)
    key = json.dumps([sorted(requirements), sys.version, *([wheels.digest] if wheels else [])])
    home = Path(os.environ.get("ARENA_HOME", DEFAULT_HOME)).expanduser()
    folder = home / "venvs" / hashlib.sha256(key.encode()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _build(folder, [*_sources(wheels), "--", *requirements], entry, whose)
    return folder / "bin" / "python"


def _sources(wheels: Wheels | None) -> list[str]:
    """Where packages come from; `--isolated` because settings of this machine's installer may name more places."""
    return ["--isolated", "--no-index", "--find-links", str(wheels.folder)] if wheels else []


def _build(folder: Path, wanted: list[str], entry: str, whose: str) -> None:
    if folder.exists():
        shutil.rmtree(folder)  # an earlier attempt was cut short
    base, inside = str(getattr(sys, "_base_executable", sys.executable)), str(folder / "bin" / "python")
    # Our own pip installs for the new environment; giving each one a pip of its own would take longer than the rest.
    ours = importlib.util.find_spec("pip") is not None
    # -P: the working directory may be a repository, and a folder `pip` in it must not be what runs here.
    pip = [sys.executable, "-P", "-m", "pip", "--python", inside] if ours else [inside, "-P", "-m", "pip"]
    flags = ["--quiet", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]
    create = [base, "-P", "-m", "venv", *(["--without-pip"] if ours else []), str(folder)]
    for command in (create, [*pip, "install", *flags, *wanted]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            names = ", ".join(wanted[wanted.index("--") + 1 :])
            raise RewardError(
                f"{whose}'s requirements ({names}) could not be installed as wheels: {last}", entry
            )
    (folder / "complete").touch()
