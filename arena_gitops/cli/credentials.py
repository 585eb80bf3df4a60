"""Which token goes to which origin. A token is never sent to an origin it was not given for.

Tokens live in `~/.config/arena-gitops/credentials.json`: `{"https://arena.example.org": {"token": "…"}}`.
ARENA_API_KEY is for the server of ARENA_BASE_URL, or without that for the target that was named on the
command line; a URL that only the repository names never receives it, because a pull request can change it.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from arena_gitops.errors import AuthError

DEFAULT_PORTS = {"http": 80, "https": 443}


class Credential(BaseModel):
    """What is kept for one origin."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    token: str


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
    key = environ.get("ARENA_API_KEY")
    if key and key_allowed and _is_of_key(url, environ):
        return key
    path = credentials_file(environ)
    kept = _read(path)
    for known, credential in kept.items():
        if origin(known) == origin(url):
            return credential.token
    unused = ""
    if key:
        unused = "; ARENA_API_KEY is only for the server of ARENA_BASE_URL or of an explicit --target"
    raise AuthError(
        f"no token for {origin(url)}: set ARENA_BASE_URL={origin(url)} and ARENA_API_KEY, "
        f"or add the origin to {path}{unused}"
    )


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
