"""The key of one server: values that must be read again are encrypted with it, cookies and tokens signed.

It lives outside the database, so that a copy of the database opens nothing: in `$ARENA_HOME/secret.key`, readable by
its owner only and made on first use, or in the variable ARENA_SECRET_KEY where several machines share a database.
Keys for other purposes than encryption are derived from it, so that none can stand in for another.

A key is replaced by writing a new one before it, one a line (`arena-runner key rotate`): the first closes, all open. The
server encrypts anew with the first when it starts; then the others can go (`arena-runner key forget`).
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

from cryptography.fernet import Fernet, MultiFernet

from arena_gitops.errors import UsageError
from arena_runner.server.home import Home

VARIABLE = "ARENA_SECRET_KEY"
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Keys:
    """One root key and what follows from it."""

    root: bytes = field(repr=False)
    """as Fernet writes keys: 32 bytes in URL-safe base64"""
    older: tuple[bytes, ...] = field(default=(), repr=False)
    """what values may still be encrypted with"""

    @property
    def fernet(self) -> MultiFernet:
        """Authenticated encryption of values: closes with the newest key, opens with any."""
        return MultiFernet([Fernet(key) for key in (self.root, *self.older)])

    @property
    def newest(self) -> Keys:
        """As if there had never been another."""
        return Keys(self.root)

    def derive(self, purpose: str) -> bytes:
        """A key of its own for this purpose."""
        return hmac.new(self.root, purpose.encode(), hashlib.sha256).digest()


def keys_of(home: Home, environ: Mapping[str, str] | None = None) -> Keys:
    """The server's keys; a home without any gets a new one."""
    given = (os.environ if environ is None else environ).get(VARIABLE)
    if given:
        return _parsed(given.encode(), VARIABLE)
    return _of_file(home.secret_key)


@lru_cache(maxsize=16)
def _of_file(path: Path) -> Keys:
    if not path.exists():
        _make(path)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"{path} can be read by other users of this machine: chmod 600 {path}")
    return _parsed(path.read_bytes(), str(path))


def rotate(home: Home) -> None:
    """Write a new key before those there are; a server that runs has it after its next start."""
    keys = keys_of(home, {})
    _write(home.secret_key, (Fernet.generate_key(), keys.root, *keys.older))


def forget_older(home: Home) -> int:
    """Leave the newest key only; how many went."""
    keys = _of_file.__wrapped__(home.secret_key)
    _write(home.secret_key, (keys.root,))
    return len(keys.older)


def _write(path: Path, keys: tuple[bytes, ...]) -> None:
    """Appear whole, in place of what was there."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".key-")  # mkstemp makes it 0600
    with os.fdopen(handle, "wb") as file:
        file.write(b"\n".join(keys) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
    _of_file.cache_clear()


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


def _parsed(text: bytes, where: str) -> Keys:
    first, *older = [_checked(word, where) for word in text.replace(b",", b" ").split()] or [
        _checked(b"", where)
    ]
    return Keys(first, tuple(older))


def _checked(text: bytes, where: str) -> bytes:
    try:
        good = len(base64.urlsafe_b64decode(text)) == KEY_BYTES
    except (binascii.Error, ValueError):
        good = False
    if not good:
        raise UsageError(f"{where} holds no key: expected {KEY_BYTES} random bytes in URL-safe base64")
    return text
