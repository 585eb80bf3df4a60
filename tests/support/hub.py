"""A loopback stand-in for the Hugging Face hub: datasets are searched, described, listed and read."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

REVISION = "e53f048856ff4f594e959d75785d2c2d37b678ee"
REVISIONS = ("main", REVISION)
Datasets = Mapping[str, Mapping[str, bytes]]
Answer = tuple[int, dict[str, str], bytes]
NOTHING: Answer = (404, {"X-Error-Code": "EntryNotFound"}, b"")
UNKNOWN: Answer = (404, {"X-Error-Code": "RepoNotFound"}, b"")


def parquet(rows: Sequence[Mapping[str, str]]) -> bytes:
    """Rows as a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), out)
    return out.getvalue()


@contextmanager
def hub(datasets: Datasets) -> Iterator[str]:
    """Serve `{"openai/gsm8k": {"main/train-00000-of-00001.parquet": …}}`; gives the value of HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(body=True)

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def answer(self, *, body: bool) -> None:
            status, headers, content = _find(datasets, self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def _find(datasets: Datasets, path: str) -> Answer:
    parts = urlsplit(path)
    if parts.path == "/api/datasets":
        return _search(datasets, parse_qs(parts.query).get("search", [""])[0])
    for name, files in datasets.items():
        if parts.path in {f"/api/datasets/{name}", *_at(f"/api/datasets/{name}/revision")}:
            described = {"id": name, "sha": REVISION, "siblings": [{"rfilename": file} for file in files]}
            return _json(described)
        if parts.path in _at(f"/api/datasets/{name}/tree"):
            return _json([_entry(file, content) for file, content in files.items()])
        for file, content in files.items():
            if parts.path in {f"{root}/{file}" for root in _at(f"/datasets/{name}/resolve")}:
                etag = hashlib.sha256(content).hexdigest()
                return 200, {"X-Repo-Commit": REVISION, "ETag": f'"{etag}"'}, content
    known = any(parts.path.startswith((f"/api/datasets/{name}", f"/datasets/{name}")) for name in datasets)
    return NOTHING if known else UNKNOWN


def _search(datasets: Datasets, text: str) -> Answer:
    found = [
        {"id": name, "downloads": 10 * (number + 1), "likes": number, "description": f"rows of {name}"}
        for number, name in enumerate(sorted(datasets))
        if text.lower() in name.lower()
    ]
    return _json(sorted(found, key=lambda row: -int(row["downloads"])))


def _at(prefix: str) -> set[str]:
    return {f"{prefix}/{revision}" for revision in REVISIONS}


def _entry(file: str, content: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": file, "size": len(content), "oid": oid}


def _json(value: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()
