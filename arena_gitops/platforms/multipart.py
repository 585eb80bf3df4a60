"""A form with files as HTTP sends it, streamed: its length is known before the first byte of a file is read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arena_gitops.errors import StaleError

CHUNK = 1 << 18

Sent = Callable[[int], None]
"""Told how many bytes of the whole form are out."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """One file of a form: on disk, or in memory."""

    field: str
    filename: str
    source: Path | bytes
    content_type: str = "application/octet-stream"

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size


@dataclass(frozen=True, slots=True)
class Form:
    """Text fields and files; may be sent as often as it takes."""

    fields: Mapping[str, str]
    files: tuple[FilePart, ...] = ()
    sent: Sent = lambda _: None
    boundary: str = field(default_factory=lambda: f"arena-{secrets.token_hex(16)}")

    @property
    def headers(self) -> dict[str, str]:
        """What a request with this form says about it."""
        return {
            "Content-Type": f"multipart/form-data; boundary={self.boundary}",
            "Content-Length": str(self.length),
        }

    @property
    def length(self) -> int:
        """Of the whole form, in bytes."""
        files = sum(len(self._head_of(part)) + part.size + 2 for part in self.files)
        return len(self._texts()) + files + len(self._end())

    def chunks(self) -> Iterator[bytes]:
        """The form, from its first byte."""
        done = 0
        for chunk in self._pieces():
            yield chunk
            done += len(chunk)
            self.sent(done)

    def _pieces(self) -> Iterator[bytes]:
        yield self._texts()
        for part in self.files:
            yield self._head_of(part)
            yield from _content(part)
            yield b"\r\n"
        yield self._end()

    def _texts(self) -> bytes:
        parts = (
            f'--{self.boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"\r\n\r\n{value}\r\n'
            for name, value in self.fields.items()
        )
        return "".join(parts).encode()

    def _head_of(self, part: FilePart) -> bytes:
        names = f'name="{_quoted(part.field)}"; filename="{_quoted(part.filename)}"'
        return (
            f"--{self.boundary}\r\nContent-Disposition: form-data; {names}\r\n"
            f"Content-Type: {part.content_type}\r\n\r\n"
        ).encode()

    def _end(self) -> bytes:
        return f"--{self.boundary}--\r\n".encode()


def _content(part: FilePart) -> Iterator[bytes]:
    if isinstance(part.source, bytes):
        yield part.source
        return
    left = part.size
    with part.source.open("rb") as file:
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
    if left:
        raise StaleError(f"{part.source} became shorter while it was sent; run the command again")


def _quoted(text: str) -> str:
    """As browsers do it: what would end the name or the line is percent-encoded."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
