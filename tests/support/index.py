"""A loopback package index with tiny real wheels, as an installer asks for them (PEP 503)."""

from __future__ import annotations

import base64
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution

from packaging.utils import canonicalize_name


def wheel(name: str, version: str, code: str, *requires: str, tag: str = "py3-none-any") -> tuple[str, bytes]:
    """A package of one module; its file name and bytes."""
    about, out = f"{name}-{version}.dist-info", io.BytesIO()
    needed = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},sha256={_record(text)},{len(text)}\n" for path, text in files.items())
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
    return f"{name}-{version}-{tag}.whl", out.getvalue()


def _record(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@dataclass
class Index:
    """What it has, by package, and what it was asked for."""

    packages: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""
    status: int = 200
    """of every answer"""
    gate: threading.Event = field(default_factory=threading.Event)
    """answers wait for it"""

    def add(self, name: str, version: str, code: str, *requires: str, tag: str = "py3-none-any") -> str:
        file, data = wheel(name, version, code, *requires, tag=tag)
        self.packages.setdefault(name, {})[file] = data
        return file

    def add_installed(self, *names: str) -> None:
        """Wheels of what this interpreter has, made of its installed files; nothing is downloaded."""
        for name in names:
            found = distribution(name)
            tags = [line.partition(": ")[2] for line in (found.read_text("WHEEL") or "").splitlines()]
            tag = next(tag for tag in reversed(tags) if tag.count("-") == 2)
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as archive:
                for path in found.files or ():
                    if ".." not in path.parts and "__pycache__" not in path.parts:
                        archive.write(path.locate(), str(path))
            known = canonicalize_name(name)
            file = f"{known.replace('-', '_')}-{found.version}-{tag}.whl"
            self.packages.setdefault(known, {})[file] = out.getvalue()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        self.asked.append(path)
        self.gate.wait(20)
        _, _, package, file = [*path.split("/"), "", ""][:4]
        held = self.packages.get(package)
        if self.status != 200 or held is None or (file and file not in held):
            return (self.status if self.status != 200 else 404), "text/plain", b"no"
        if file:
            return 200, "application/zip", held[file]
        links = "".join(f'<a href="{name}">{name}</a>' for name in held)
        return 200, "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()


@contextmanager
def package_index() -> Iterator[Index]:
    """Serve one; `url` is the value of PIP_INDEX_URL."""
    index = Index()
    index.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, content = index.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple/"
    try:
        yield index
    finally:
        index.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
