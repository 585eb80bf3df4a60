"""The folder a sandbox lives in: a private copy of the user's files, an empty temporary folder, a mount point.

The copy exists because the originals may lie under folders that an unprivileged user cannot enter, and because
nothing the user's code does may touch them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from arena_runner.sandbox.score import RewardError

FIRST_UID, LAST_UID = 61184, 65519
"""the range systemd reserves for users made up on the spot"""


@dataclass(frozen=True, slots=True)
class Box:
    """Paths of one sandbox, and the user its code runs as when we are root."""

    root: Path
    uid: int

    @property
    def files(self) -> Path:
        """The read-only copy of the repository files; the working directory."""
        return self.root / "files"

    @property
    def temporary(self) -> Path:
        """`TMPDIR` inside."""
        return self.root / "tmp"

    @property
    def mount(self) -> Path:
        """Where the inner root file system is put together."""
        return self.root / "root"

    @classmethod
    def make(cls, source: Path, names: tuple[str, ...]) -> Self:
        """Copy `names` (POSIX paths under `source`) into a new box."""
        paths = [inside(name) for name in names]
        root = Path(tempfile.mkdtemp(prefix="arena-sandbox-")).resolve()
        # A user of its own per box: neither files nor process limits are shared with another box.
        uid = FIRST_UID + int.from_bytes(os.urandom(4)) % (LAST_UID - FIRST_UID + 1)
        box = cls(root, uid)
        root.chmod(0o711)
        box.mount.mkdir()
        box.files.mkdir()  # also when nothing is in it: that is said by whoever looks for the entry
        box.temporary.mkdir(mode=0o700)
        if os.getuid() == 0:
            os.chown(box.temporary, uid, uid)
        for name in paths:
            target = box.files / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target)
            target.chmod(0o444)
        for folder, _, _ in os.walk(box.files):
            Path(folder).chmod(0o555)
        return box

    def remove(self) -> None:
        """Delete the folder."""
        for folder, _, _ in os.walk(self.files):
            Path(folder).chmod(0o755)
        shutil.rmtree(self.root)


def inside(name: str) -> PurePosixPath:
    """The path when it stays within its folder; raises RewardError when it would leave it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise RewardError(f"{name!r} is not a path inside the repository")
    return path
