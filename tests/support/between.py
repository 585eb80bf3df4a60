"""A proxy on loopback between a command and a real server, at whose two sides a test can do as it likes.

`before` is called with each request that has come in and not gone on; `after` with the status of each answer
that has not gone back. Either may wait, kill the command, or return an answer of its own (status, body).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

Own = tuple[int, bytes] | None
HOP = {"connection", "content-length", "transfer-encoding", "host", "content-encoding", "accept-encoding"}


@dataclass
class Between:
    """What a test wants to happen, and what it has seen."""

    upstream: str
    url: str = ""
    before: Callable[[str, str], Own] = lambda _method, _path: None
    after: Callable[[str, str, int], Own] = lambda _method, _path, _status: None
    seen: list[tuple[str, str]] = field(default_factory=list)
    authorised: list[str | None] = field(default_factory=list)
    """the token of each request"""

    def quiet(self) -> None:
        """From now on only pass on."""
        self.before = lambda _method, _path: None
        self.after = lambda _method, _path, _status: None

    def changes(self) -> list[str]:
        """What was PUT or DELETEd, in order."""
        return [path for method, path in self.seen if method in {"PUT", "DELETE"} and "/resources/" in path]


class _Handler(BaseHTTPRequestHandler):
    between: Between
    client: httpx.Client
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        between = self.between
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        between.seen.append((self.command, self.path))
        between.authorised.append(self.headers.get("Authorization"))
        own = between.before(self.command, self.path)
        if own is not None:
            self._answer(*own, {})
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        got = self.client.request(self.command, self.path, content=body, headers=headers)
        own = between.after(self.command, self.path, got.status_code)
        if own is not None:
            self._answer(*own, {})
        else:
            self._answer(got.status_code, got.content, dict(got.headers))

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            length = headers.get("content-length") if self.command == "HEAD" else None
            if status not in {204, 304}:
                self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the command that asked is gone, as was meant

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = handle_any  # noqa: N815 - the library's names

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def between(upstream: str) -> Iterator[Between]:
    """A proxy before `upstream`."""
    found = Between(upstream)
    with httpx.Client(base_url=upstream, timeout=60) as client:
        handler = type("Handler", (_Handler,), {"between": found, "client": client})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        found.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()
            server.server_close()
