"""A reward's own requirements: one cached virtual environment per list of requirements and Python version."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from arena_runner.sandbox.score import RewardError

DEFAULT_HOME = "~/.local/share/arena-gitops"


def python_with(requirements: tuple[str, ...], *, entry: str, whose: str = "the reward") -> Path | None:
    """The interpreter that has `requirements`, built on first use; None when there are none.

    Only wheels are installed: building a source package would run its code outside the sandbox.
    """
    if not requirements:
        return None
    key = json.dumps([sorted(requirements), sys.version])
    home = Path(os.environ.get("ARENA_HOME", DEFAULT_HOME)).expanduser()
    folder = home / "venvs" / hashlib.sha256(key.encode()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _build(folder, requirements, entry, whose)
    return folder / "bin" / "python"


def _build(folder: Path, requirements: tuple[str, ...], entry: str, whose: str) -> None:
    if folder.exists():
        shutil.rmtree(folder)  # an earlier attempt was cut short
    base, inside = str(getattr(sys, "_base_executable", sys.executable)), str(folder / "bin" / "python")
    # Our own pip installs for the new environment; giving each one a pip of its own would take longer than the rest.
    ours = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip", "--python", inside] if ours else [inside, "-m", "pip"]
    flags = ["--quiet", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]
    create = [base, "-m", "venv", *(["--without-pip"] if ours else []), str(folder)]
    for command in (create, [*pip, "install", *flags, "--", *requirements]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            names = ", ".join(requirements)
            raise RewardError(
                f"{whose}'s requirements ({names}) could not be installed as wheels: {last}", entry
            )
    (folder / "complete").touch()
