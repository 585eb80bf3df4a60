"""A real HTTP server on loopback that says what a test tells it to say, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Answer = tuple[int, bytes, dict[str, str]]


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """Answers `(status, body, headers)` in order, the last one again and again; None cuts the connection."""

    url: str = ""
    answers: list[Answer | None] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def will(self, *answers: Answer | None) -> None:
        self.answers[:] = answers

    def next(self) -> Answer | None:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class _Handler(BaseHTTPRequestHandler):
    scripted: Scripted

    def handle_any(self) -> None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            raise AssertionError("the client knows every length and must say it")
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.scripted.asked.append(Asked(self.command, self.path, headers, body))
        answer = self.scripted.next()
        if answer is None:
            self.close_connection = True
            return
        status, content, extra = answer
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - the library's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    script = Scripted()
    handler = type("Handler", (_Handler,), {"scripted": script})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield script
    server.shutdown()
    thread.join()
    server.server_close()
