"""Which token goes to which origin. A token is never sent to an origin it was not given for.

Tokens live in `~/.config/arena-gitops/credentials.json`: `{"https://arena.example.org": {"token": "…"}}`; `arena login`
writes it. ARENA_API_KEY is for the server of ARENA_BASE_URL, or without that for the target that was named on the
command line; a URL that only the repository names never receives it, because a pull request can change it.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from arena_gitops.errors import AuthError

DEFAULT_PORTS = {"http": 80, "https": 443}


class Credential(BaseModel):
    """What is kept for one origin."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    token: str = Field(repr=False)
    refresh_token: str | None = Field(default=None, repr=False)
    """of a login in the browser: what the token is renewed with"""
    expires: float | None = None
    """of the token, where it is renewed; seconds since the epoch"""


_CREDENTIALS: TypeAdapter[dict[str, Credential]] = TypeAdapter(dict[str, Credential])


def origin(url: str) -> str:
    """Scheme, host and port, in one spelling."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    port = parts.port
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}" + (f":{port}" if port and port != DEFAULT_PORTS.get(scheme) else "")


def credentials_file(environ: Mapping[str, str]) -> Path:
    """Where tokens are kept."""
    home = Path(environ["HOME"]) if "HOME" in environ else Path.home()
    return home / ".config" / "arena-gitops" / "credentials.json"


def token_for(url: str, environ: Mapping[str, str], *, key_allowed: bool) -> str:
    """The token of this origin; raises AuthError with what to do when there is none."""
    return credential_for(url, environ, key_allowed=key_allowed).token


def credential_for(url: str, environ: Mapping[str, str], *, key_allowed: bool) -> Credential:
    """What opens this origin, and how it is renewed; raises AuthError with what to do when there is nothing."""
    key = environ.get("ARENA_API_KEY")
    if key and key_allowed and _is_of_key(url, environ):
        return Credential(token=key)
    found = kept(url, environ)
    if found is not None:
        return found
    unused = ""
    if key:
        unused = "; ARENA_API_KEY is only for the server of ARENA_BASE_URL or of an explicit --target"
    raise AuthError(
        f"no token for {origin(url)}: arena login --target {origin(url)}, "
        f"or set ARENA_BASE_URL={origin(url)} and ARENA_API_KEY{unused}"
    )


def kept(url: str, environ: Mapping[str, str]) -> Credential | None:
    """What is kept for this origin."""
    return _find(_read(credentials_file(environ)), url)


def keep(url: str, credential: Credential, environ: Mapping[str, str]) -> None:
    """Remember a credential for its origin, in place of an earlier one."""
    with _changing(environ) as known:
        _drop(known, url)
        known[origin(url)] = credential


def forget(url: str, environ: Mapping[str, str]) -> Credential | None:
    """Remember nothing for this origin any more; what was kept."""
    with _changing(environ) as known:
        return _drop(known, url)


def renewed(url: str, environ: Mapping[str, str], renew: Callable[[Credential], Credential]) -> Credential:
    """Replace what is kept by what `renew` makes of it, one command at a time."""
    with _changing(environ) as known:
        found = _find(known, url)
        if found is None:
            raise AuthError(f"you have logged out of {origin(url)} meanwhile")
        known[origin(url)] = renew(found)
        return known[origin(url)]


@contextmanager
def _changing(environ: Mapping[str, str]) -> Iterator[dict[str, Credential]]:
    """The file's content, to be changed while no other command changes it; it appears whole or not at all."""
    path = credentials_file(environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_name("credentials.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _read(path)
        before = dict(known)
        yield known
        if known != before:
            _write(path, known)


def _write(path: Path, known: Mapping[str, Credential]) -> None:
    text = json.dumps({url: c.model_dump(exclude_none=True) for url, c in known.items()}, indent=2)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".credentials-")  # mkstemp makes it 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    Path(partial).replace(path)


def _find(known: Mapping[str, Credential], url: str) -> Credential | None:
    return next((credential for name, credential in known.items() if origin(name) == origin(url)), None)


def _drop(known: dict[str, Credential], url: str) -> Credential | None:
    found = _find(known, url)
    for name in [name for name in known if origin(name) == origin(url)]:
        del known[name]
    return found


def _is_of_key(url: str, environ: Mapping[str, str]) -> bool:
    base = environ.get("ARENA_BASE_URL")
    return not base or origin(base) == origin(url)


def _read(path: Path) -> dict[str, Credential]:
    try:
        mode = path.stat().st_mode
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AuthError(f"{path} can be read by other users of this machine: chmod 600 {path}")
    try:
        return _CREDENTIALS.validate_json(text)
    except ValidationError:
        # The library's own text would quote what it read, that is, a token.
        raise AuthError(f'{path} cannot be read; expected {{"https://host": {{"token": "…"}}}}') from None
