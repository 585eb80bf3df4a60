"""A reward's own requirements: one cached virtual environment per list of requirements and Python version."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from arena_runner.sandbox.score import RewardError

DEFAULT_HOME = "~/.local/share/arena-gitops"


def python_with(requirements: tuple[str, ...], *, entry: str) -> Path | None:
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
            _build(folder, requirements, entry)
    return folder / "bin" / "python"


def _build(folder: Path, requirements: tuple[str, ...], entry: str) -> None:
    if folder.exists():
        shutil.rmtree(folder)  # an earlier attempt was cut short
    base = str(getattr(sys, "_base_executable", sys.executable))
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--only-binary",
        ":all:",
    ]
    for command in (
        [base, "-m", "venv", str(folder)],
        [*pip, "--disable-pip-version-check", "--", *requirements],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            names = ", ".join(requirements)
            raise RewardError(
                f"the reward's requirements ({names}) could not be installed as wheels: {last}", entry
            )
    (folder / "complete").touch()
