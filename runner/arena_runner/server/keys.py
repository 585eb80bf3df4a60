"""The key of one server: values that must be read again are encrypted with it, cookies and tokens signed.

It lives outside the database, so that a copy of the database opens nothing: in `$ARENA_HOME/secret.key`, readable by
its owner only and made on first use, or in the variable ARENA_SECRET_KEY where several machines share a database.
Keys for other purposes than encryption are derived from it, so that none can stand in for another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from cryptography.fernet import Fernet

from arena_gitops.errors import UsageError
from arena_runner.server.home import Home

VARIABLE = "ARENA_SECRET_KEY"
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Keys:
    """One root key and what follows from it."""

    root: bytes = field(repr=False)
    """as Fernet writes keys: 32 bytes in URL-safe base64"""

    @property
    def fernet(self) -> Fernet:
        """Authenticated encryption of values."""
        return Fernet(self.root)

    def derive(self, purpose: str) -> bytes:
        """A key of its own for this purpose."""
        return hmac.new(self.root, purpose.encode(), hashlib.sha256).digest()


def keys_of(home: Home, environ: Mapping[str, str] | None = None) -> Keys:
    """The server's keys; a home without any gets a new one."""
    given = (os.environ if environ is None else environ).get(VARIABLE)
    if given:
        return Keys(_checked(given.encode(), VARIABLE))
    return _of_file(home.secret_key)


@lru_cache(maxsize=16)
def _of_file(path: Path) -> Keys:
    if not path.exists():
        _make(path)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"{path} can be read by other users of this machine: chmod 600 {path}")
    return Keys(_checked(path.read_bytes().strip(), str(path)))


def _make(path: Path) -> None:
    """Appear whole and only once: of two that make it at the same time, the first one's stays."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".key-")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(Fernet.generate_key() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(name)
    except FileExistsError:
        pass  # another process was first, and its key is as good
    finally:
        Path(name).unlink()


def _checked(text: bytes, where: str) -> bytes:
    try:
        good = len(base64.urlsafe_b64decode(text)) == KEY_BYTES
    except (binascii.Error, ValueError):
        good = False
    if not good:
        raise UsageError(f"{where} holds no key: expected {KEY_BYTES} random bytes in URL-safe base64")
    return text
