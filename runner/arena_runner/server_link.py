"""The worker's side of the wire: claim, report, blobs. Three outcomes: an answer, `unreachable`, `fenced`.

Does not retry and does not know what a run is; the journal and the worker decide what a refusal means.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode

import httpx
from pydantic import ValidationError

from arena_gitops.errors import ArenaError
from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.wire import REQUEST_ID, Claim, ClaimRequest, ErrorBody, EventBatch, EventReceipt
from arena_gitops.spec.worker import (
    HandBack,
    HostOrders,
    HostReport,
    ModelFile,
    ModelListing,
    SplitListing,
    WheelFile,
    WheelListing,
    WheelTarget,
    WorkerHello,
    WorkerWelcome,
)
from arena_runner.checkpoint import file_digest
from arena_runner.faults import InputError, OutsideError

API = "/api/v1"

Listing = TypeVar("Listing", WheelListing, SplitListing)
CHUNK = 1 << 20
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
BLOB_TIMEOUT = httpx.Timeout(300.0, connect=5.0)


class UnreachableError(ArenaError):
    """No answer, or one that says to come back later."""


class FencedError(ArenaError):
    """The job belongs to another worker now, or is over."""


class RefusedError(ArenaError):
    """The server understood and will not; trying again changes nothing."""


class ServerLink:
    """One server, one token; once `job` is set, one job."""

    def __init__(self, url: str, token: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self.url, self.token = url, token
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT, transport=transport)
        self._job = ""
        self._pass: dict[str, str] = {}
        """the header that opens the claimed job"""

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def register(self, hello: WorkerHello) -> WorkerWelcome:
        """Introduce a worker; RefusedError when its version, tier or token is not wanted."""
        answer = self._call("POST", f"{API}/workers/register", json=hello.model_dump(mode="json"))
        return WorkerWelcome.model_validate_json(answer.content)

    def host(self, report: HostReport) -> HostOrders:
        """Report as a serving host; what it should run."""
        answer = self._call("POST", f"{API}/workers/hosts", json=report.model_dump(mode="json"))
        return HostOrders.model_validate_json(answer.content)

    def leave(self, worker_id: str) -> None:
        """Tell the server that this worker ends."""
        self._pass = {}
        self._call("POST", f"{API}/workers/leave", json={"worker_id": worker_id})

    def claim(self, request: ClaimRequest) -> Claim | None:
        """Ask for a job; None when there is none."""
        self._pass = {}
        answer = self._call("POST", f"{API}/workers/claim", json=request.model_dump(mode="json"))
        if answer.status_code == 204:
            return None
        claim = Claim.model_validate_json(answer.content)
        if (
            claim.job.request_id
        ):  # the server's log then tells of the worker's calls under the number of the run
            self._client.headers[REQUEST_ID] = claim.job.request_id
        else:
            self._client.headers.pop(REQUEST_ID, None)
        self._job = f"{API}/workers/jobs/{claim.job.run_id}/{claim.job.segment}"
        self._pass = {"Authorization": f"Bearer {claim.token}"} if claim.token else {}
        return claim

    def report(self, batch: EventBatch) -> EventReceipt:
        """Report events of the claimed job; an empty batch is a heartbeat."""
        answer = self._call("POST", f"{self._job}/events", json=batch.model_dump(mode="json"))
        return EventReceipt.model_validate_json(answer.content)

    def hand_back(self, fence: int, why: str, *, fault: bool) -> None:
        """Give the claimed job back."""
        given = HandBack(fence=fence, message=why[:4000], fault=fault)
        self._call("POST", f"{self._job}/hand-back", json=given.model_dump(mode="json"))

    def put(self, digest: str, path: Path) -> None:
        """Upload a file unless the server has it; raises FileNotFoundError if it is gone here."""
        if self._call("HEAD", f"{API}/blobs/{digest}", allow={404}).status_code != 404:
            return
        size = str(path.stat().st_size)
        headers = {"Content-Type": "application/octet-stream", "Content-Length": size}
        self._call(
            "PUT", f"{API}/blobs/{digest}", content=_chunks(path), headers=headers, timeout=BLOB_TIMEOUT
        )

    def get(self, digest: str, target: Path) -> None:
        """Download a blob; it appears at `target` whole and verified, or not at all."""
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".incoming-")
        try:
            with os.fdopen(handle, "wb") as file:
                self._download(digest, file.write)
            if (found := file_digest(Path(name))) != digest:
                raise RefusedError(f"blob {digest} arrived as {found}")
            Path(name).replace(target)
        finally:
            Path(name).unlink(missing_ok=True)

    def model_listing(self, model: ModelRef) -> ModelListing | None:
        """The files of a base model on the server; None when it has none of that name."""
        answer = self._call("GET", _model_path(model), allow={404}, timeout=BLOB_TIMEOUT)
        return None if answer.status_code == 404 else ModelListing.model_validate_json(answer.content)

    def get_model_file(self, model: ModelRef, file: ModelFile, target: Path) -> None:
        """Download a file of a base model."""
        self._get_file(
            _model_path(model) + quote(file.path), file, target, f"{file.path} of model {model.id}"
        )

    def wheel_listing(self, wanted: WheelTarget) -> WheelListing:
        """The packages that the claimed job requires, for an interpreter.

        Raises:
            UnreachableError: The server is resolving them, or away.
            InputError: They cannot be had.
            OutsideError: The server's package index does not answer.
        """
        return self._outside(f"{API}/wheels/?{_wheel_query(wanted)}", WheelListing)

    def get_wheel(self, wanted: WheelTarget, file: WheelFile, target: Path) -> None:
        """Download one of them."""
        path = f"{API}/wheels/{quote(file.path)}?{_wheel_query(wanted)}"
        self._get_file(path, file, target, file.path)

    def split_listing(self) -> SplitListing:
        """The files of the hub's dataset that the claimed job trains on.

        Raises:
            UnreachableError: The server is fetching them, or away.
            InputError: There is no such dataset, revision or split.
            OutsideError: The hub does not answer the server.
        """
        return self._outside(f"{API}/splits/", SplitListing)

    def get_split_file(self, file: ModelFile, target: Path) -> None:
        """Download one of them."""
        self._get_file(f"{API}/splits/{quote(file.path)}", file, target, file.path)

    def _outside(self, path: str, form: type[Listing]) -> Listing:
        """What the server had to fetch from elsewhere first."""
        answer = self._call("GET", path, allow={422, 424}, timeout=BLOB_TIMEOUT)
        match answer.status_code:
            case 422:
                raise InputError(_words(answer))
            case 424:
                raise OutsideError(_words(answer))
            case _:
                return form.model_validate_json(answer.content)

    def _get_file(self, path: str, file: ModelFile | WheelFile, target: Path, called: str) -> None:
        """Download a file, continuing what a broken line has left of it."""
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        have = part.stat().st_size if part.exists() else 0
        headers = dict(self._pass)
        if 0 < have < file.size:
            headers |= {"Range": f"bytes={have}-", "If-Range": f'"{file.digest}"'}
        with self._stream(path, headers) as answer, _opened(part, answer) as opened:
            for (
                chunk
            ) in answer.iter_bytes():  # as it comes, so that what has come is kept when the line breaks
                opened.write(chunk)
        if (found := file_digest(part)) != file.digest:
            part.unlink()
            raise RefusedError(f"{called} arrived as {found}, not {file.digest}")
        part.replace(target)

    def _download(self, digest: str, write: Callable[[bytes], object]) -> None:
        with self._stream(f"{API}/blobs/{digest}", self._pass) as answer:
            for chunk in answer.iter_bytes(CHUNK):
                write(chunk)

    @contextmanager
    def _stream(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        try:
            with self._client.stream("GET", path, headers=headers, timeout=BLOB_TIMEOUT) as answer:
                if answer.status_code not in {200, 206}:
                    answer.read()
                    _check(answer)
                yield answer
        except httpx.TransportError as error:
            raise UnreachableError(f"GET {path}: {error}") from error

    def _call(self, method: str, path: str, *, allow: Container[int] = (), **options: Any) -> httpx.Response:
        try:
            headers = {**self._pass, **options.pop("headers", {})}
            answer = self._client.request(method, path, headers=headers, **options)
        except httpx.TransportError as error:
            raise UnreachableError(f"{method} {path}: {error}") from error
        if answer.status_code not in allow:
            _check(answer)
        return answer


def _check(answer: httpx.Response) -> None:
    """Turn a refusal into one of the three outcomes."""
    status = answer.status_code
    if status < 300:
        return
    said = f"{answer.request.method} {answer.request.url.path}: {status} {_words(answer)}"
    if status in {409, 412}:
        raise FencedError(said)
    if status in {408, 425, 429} or status >= 500:
        raise UnreachableError(said)
    raise RefusedError(said)


def _opened(part: Path, answer: httpx.Response) -> IO[bytes]:
    """A file to be continued where the server does so, else begun again."""
    return part.open("ab" if answer.status_code == 206 else "wb")


def _model_path(model: ModelRef) -> str:
    return f"{API}/models/{quote(model.id)}@{quote(model.revision or 'main', safe='')}/"


def _wheel_query(wanted: WheelTarget) -> str:
    return urlencode(wanted.model_dump(), doseq=True)


def _words(answer: httpx.Response) -> str:
    """What the server says, without the wrapping."""
    try:
        return ErrorBody.model_validate_json(answer.content).message
    except ValidationError:  # a proxy's page, or another server
        return answer.text[:500]


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
