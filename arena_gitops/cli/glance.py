"""The same question, nothing moved: `arena plan` answers from what it said the last time.

An answer is kept only where there was nothing to do, and given again only for the same words in the same folder
with the same program, files, settings and day, once the server has said that its state has not moved. Anything
else, a damaged entry too, is planned anew. Nothing heavy may be imported here.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
MOST_BYTES = 4 << 20
MOST_KEPT_BYTES = 32 << 20
"""Of all answers together; the oldest go first."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
SETTINGS = ("ARENA_BASE_URL", "ARENA_API_KEY", "ARENA_HOME", "CI", "NO_COLOR", "HOME", "XDG_CONFIG_HOME")


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, and of which files; equal ones have equal answers while the platform stands still."""

    key: str
    survey: str
    root: Path


@dataclass(frozen=True, slots=True)
class Where:
    """The server that was asked, and where its token is: never the token."""

    url: str
    stack: str
    namespace: str
    etag: str
    local: str | None = None
    """the note of an embedded server, which has its address and token"""


def question(args: Sequence[str], environ: Mapping[str, str]) -> Question | None:
    """What this command line asks; None where an answer could depend on something that is not looked at here."""
    if any(environ.get(name) or environ.get(name.upper()) for name in PROXIES):
        return None
    root = next((f for f in (Path.cwd(), *Path.cwd().parents) if (f / "arena.yaml").is_file()), None)
    if root is None:
        return None
    from arena_gitops.cli.session import columns
    from arena_gitops.errors import RepoError
    from arena_gitops.repo.survey import survey

    try:
        found = survey(root)
    except RepoError:
        return None  # the command itself says what is wrong
    settings = [environ.get(name) for name in SETTINGS]
    about = [
        FORMAT,
        list(args),
        str(root),
        str(Path.cwd()),
        settings,
        _program(),
        time.strftime("%Y-%m-%d", time.gmtime()),
    ]
    about += [sys.stdout.isatty(), columns(), found]
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    return Question(key, found, root) if found is not None else None


def answer(asked: Question, environ: Mapping[str, str]) -> str | None:
    """What was said to this question the last time, if nothing has moved."""
    entry = _read(_folder(environ) / f"{asked.key}.json")
    if entry is None:
        return None
    try:
        where, text = Where(**entry["where"]), entry["text"]
        url, token = _opened(where, environ)
    except (KeyError, TypeError, ValueError, OSError):
        return None
    from arena_gitops.platforms.glance import unmoved

    same = unmoved(url, token, stack=where.stack, namespace=where.namespace, etag=where.etag)
    return text if same and isinstance(text, str) else None


def remember(asked: Question, where: Where, text: str, environ: Mapping[str, str]) -> None:
    """Keep an answer, unless files moved while it was made. A folder that cannot be written keeps nothing."""
    from arena_gitops.repo.survey import survey

    if len(text) > MOST_BYTES or survey(asked.root) != asked.survey:
        return
    folder = _folder(environ)
    whole = {name: getattr(where, name) for name in Where.__slots__}
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = folder / f".{asked.key}.{os.getpid()}"
        partial.write_text(json.dumps({"where": whole, "text": text}), encoding="utf-8")
        partial.replace(folder / f"{asked.key}.json")
        _forget_the_oldest(folder)
    except OSError:
        return  # a cache is a convenience


def _opened(where: Where, environ: Mapping[str, str]) -> tuple[str, str]:
    """Address and token, from where the command itself takes them."""
    if where.local is not None:
        note = json.loads(Path(where.local).read_text("utf-8"))
        return f"http://127.0.0.1:{int(note['port'])}", str(note["token"])
    key, base = environ.get("ARENA_API_KEY"), environ.get("ARENA_BASE_URL")
    if key and base and base.rstrip("/") == where.url:
        return where.url, key
    kept = json.loads(
        (Path(environ["HOME"]) / ".config" / "arena-gitops" / "credentials.json").read_text("utf-8")
    )
    return where.url, str(kept[where.url]["token"])


def _folder(environ: Mapping[str, str]) -> Path:
    chosen = environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache") / "arena-gitops" / "plans"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > 2 * MOST_BYTES:
            return None
        entry = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return entry if isinstance(entry, dict) else None


def _forget_the_oldest(folder: Path) -> None:
    left = MOST_KEPT_BYTES
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        left -= path.stat().st_size
        if left < 0:
            path.unlink(missing_ok=True)


def _program() -> list[object]:
    """This very program: its files as they are, the interpreter, and what is installed beside it."""
    import click

    newest, count = 0, 0
    package = Path(__file__).parent.parent
    for folder in (
        package,
        *(entry for entry in package.rglob("*") if entry.is_dir() and entry.name[0] != "_"),
    ):
        for entry in os.scandir(folder):
            if entry.name.endswith(".py"):
                newest, count = max(newest, entry.stat().st_mtime_ns), count + 1
    return [newest, count, sys.version, Path(click.__file__).parent.parent.stat().st_mtime_ns]
