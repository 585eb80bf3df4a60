"""A loopback stand-in for the Hugging Face hub: the two requests by which a dataset's files are found and read."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REVISION = "e53f048856ff4f594e959d75785d2c2d37b678ee"
REVISIONS = ("main", REVISION)


def parquet(rows: Sequence[Mapping[str, str]]) -> bytes:
    """Rows as a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), out)
    return out.getvalue()


@contextmanager
def hub(datasets: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
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
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def _find(datasets: Mapping[str, Mapping[str, bytes]], path: str) -> tuple[int, dict[str, str], bytes]:
    for name, files in datasets.items():
        if path.split("?", maxsplit=1)[0] in {
            f"/api/datasets/{name}/tree/{revision}" for revision in REVISIONS
        }:
            listing = [
                {
                    "type": "file",
                    "path": file,
                    "size": len(content),
                    "oid": hashlib.sha1(content).hexdigest(),
                }
                for file, content in files.items()
            ]
            return 200, {"Content-Type": "application/json"}, json.dumps(listing).encode()
        for file, content in files.items():
            if path in {f"/datasets/{name}/resolve/{revision}/{file}" for revision in REVISIONS}:
                etag = hashlib.sha256(content).hexdigest()
                return 200, {"X-Repo-Commit": REVISION, "ETag": f'"{etag}"'}, content
    return 404, {"X-Error-Code": "EntryNotFound"}, b""
