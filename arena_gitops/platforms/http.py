"""Our own server over its native API (`spec.wire` has the table of routes).

This module knows routes and bodies; `platforms.door` knows HTTP. Beside the `Platform` port it offers what
only commands need: logs, health, tiers and generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from arena_gitops.errors import PlatformError
from arena_gitops.platforms.blobs import bytes_of
from arena_gitops.platforms.door import JSON, BehindADoor, Door, Request, Token, json_body
from arena_gitops.platforms.states import read_state
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.lease import FENCE, Heartbeat, Lease, LeaseRequest
from arena_gitops.spec.resource import Address, Frozen
from arena_gitops.spec.wire import (
    CheckLine,
    CheckRequest,
    CheckResult,
    CheckSummary,
    Owner,
    PutResource,
    ResourceDocument,
    ResumeRequest,
    Revision,
    RollbackRequest,
    StateDocument,
    StoredEvent,
    Tier,
)
from arena_gitops.spec.worker import WorkerStatus
from arena_gitops.state import Blob, ObservedState, Unsound

API = "/api/v1"
UPLOAD_TIMEOUT_S = 300.0
HEARTBEAT_TIMEOUT_S = 3.0
STREAM_ERROR = "\n[ERROR:"
"""A chunk of generated text that starts so is an error of the model server, not text (Arena protocol)."""

UNSOUND: Mapping[int, Unsound] = MappingProxyType({404: "absent", 422: "damaged"})

_CHECK_LINE: TypeAdapter[CheckResult | CheckSummary] = TypeAdapter(CheckLine)
_REVISIONS: TypeAdapter[tuple[Revision, ...]] = TypeAdapter(tuple[Revision, ...])
_LEASES: TypeAdapter[tuple[Lease, ...]] = TypeAdapter(tuple[Lease, ...])
_TIERS: TypeAdapter[tuple[Tier, ...]] = TypeAdapter(tuple[Tier, ...])
_WORKERS: TypeAdapter[tuple[WorkerStatus, ...]] = TypeAdapter(tuple[WorkerStatus, ...])

Document = TypeVar("Document", bound=Frozen)


class Health(BaseModel):
    """What `/healthz` says that matters here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    draining: bool = False


_HEALTH: TypeAdapter[Health] = TypeAdapter(Health)


class HttpPlatform(BehindADoor):
    """A server reached by URL, with a token for that origin."""

    name = "http"

    def __init__(self, url: str, token: Token = None, *, door: Door | None = None) -> None:
        self._door = door or Door(url, token)
        self._states: dict[Owner, StateDocument] = {}

    def observe(self, owner: Owner) -> ObservedState:
        """Everything `owner` has here; sent again only when it changed since the last look."""
        headers = {"Cache-Control": "no-cache"}
        known = self._states.get(owner)
        if known is not None:
            headers["If-None-Match"] = f'"{known.etag}"'
        params = {"stack": owner.stack, "namespace": owner.namespace}
        request = Request("GET", f"{API}/state", params, headers, repeatable=True)
        with self._door.pieces(request, accept=frozenset({304})) as (status, pieces):
            if status == 304 and known is not None:
                return _observed(known)
            document = _read_state(pieces, request)
        self._states[owner] = document
        return _observed(document)

    def missing_blobs(self, digests: Iterable[str]) -> frozenset[str]:
        """Ask for each digest; few resources have more than a handful of files."""
        return frozenset(digest for digest in digests if not self._has_blob(digest))

    def upload(self, blob: Blob) -> None:
        """Stream the file; the server refuses bytes that do not hash to the name."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        self._door.call(
            Request(
                "PUT",
                _blob_path(blob.digest),
                headers=headers,
                body=bytes_of(blob),
                repeatable=True,
                read_timeout_s=UPLOAD_TIMEOUT_S,
            )
        )

    def download(self, digest: str) -> Iterator[bytes]:
        """The bytes of a blob, as they come; who keeps them compares the digest."""
        request = Request("GET", _blob_path(digest), repeatable=True, read_timeout_s=UPLOAD_TIMEOUT_S)
        with self._door.stream(request) as answer:
            yield from answer.iter_bytes()

    def read_blob(self, digest: str, *, limit: int) -> bytes | None:
        """The bytes of a blob, once its size is known to be within the limit."""
        head = self._door.call(Request("HEAD", _blob_path(digest), repeatable=True), accept=frozenset({404}))
        if not head.is_success or int(head.headers.get("Content-Length", limit + 1)) > limit:
            return None
        request = Request("GET", _blob_path(digest), repeatable=True, read_timeout_s=UPLOAD_TIMEOUT_S)
        answer = self._door.call(request, accept=frozenset({403, 404}))
        return answer.content if answer.is_success else None

    def unsound_blobs(self, digests: Iterable[str]) -> Mapping[str, Unsound]:
        """Have the server hash each of them once more."""
        answers = {digest: self._verified(digest) for digest in digests}
        return {digest: UNSOUND[status] for digest, status in answers.items() if status in UNSOUND}

    def check(self, request: CheckRequest) -> Iterator[CheckResult]:
        """Stream verdicts; a stream that ends without its summary is an error, never a pass."""
        call = Request(
            "POST",
            f"{API}/checks",
            headers={**JSON, "Accept": "application/x-ndjson"},
            body=_model_body(request),
            read_timeout_s=None,
        )
        for line in self._door.lines(call):
            item = _parse_any(_CHECK_LINE, line, call)
            if isinstance(item, CheckSummary):
                return
            yield item
        raise PlatformError(f"checks of {request.address} ended before their summary; read the server's log")

    def take_lease(self, request: LeaseRequest) -> Lease | None:
        """Not repeated after a lost answer: a lease that nobody knows of ends by itself."""
        call = Request("POST", f"{API}/leases", headers=dict(JSON), body=_model_body(request))
        return _parse(Lease, self._door.call(call).text, call)

    def renew_lease(self, lease: Lease) -> Lease:
        """Tell the server that we live; once, quickly: the next heartbeat comes soon."""
        call = Request(
            "POST",
            f"{_lease_path(lease.id)}/heartbeat",
            headers=dict(JSON),
            body=_model_body(Heartbeat(fence=lease.fence)),
            read_timeout_s=HEARTBEAT_TIMEOUT_S,
        )
        return _parse(Lease, self._door.call(call).text, call)

    def release_lease(self, lease_id: str) -> None:
        """End it; quickly, because whoever is interrupted has little time."""
        self._door.call(Request("DELETE", _lease_path(lease_id), read_timeout_s=HEARTBEAT_TIMEOUT_S))

    def living_lease(self, owner: Owner) -> Lease | None:
        """Who may change a stack now."""
        params = {"stack": owner.stack, "namespace": owner.namespace}
        call = Request("GET", f"{API}/leases", params, repeatable=True)
        found = _parse_any(_LEASES, self._door.call(call).text, call)
        return found[0] if found else None

    def put(
        self,
        address: Address,
        body: PutResource,
        *,
        etag: str | None,
        idempotency_key: str,
        fence: int | None = None,
    ) -> ResourceDocument:
        """PUT with a precondition and a key, so that a repeat after a lost answer starts nothing twice."""
        precondition = {"If-None-Match": "*"} if etag is None else {"If-Match": f'"{etag}"'}
        request = Request(
            "PUT",
            _resource_path(address),
            headers={**JSON, **precondition, **_fenced(fence), "Idempotency-Key": idempotency_key},
            body=_model_body(body),
            repeatable=True,
        )
        return _parse(ResourceDocument, self._door.call(request).text, request)

    def retire(
        self, address: Address, owner: Owner, *, etag: str, fence: int | None = None, purge: bool = False
    ) -> None:
        """Forget the resource; 404 means that somebody did so already."""
        mode = "purge" if purge else "retire"
        request = Request(
            "DELETE",
            _resource_path(address),
            params={"stack": owner.stack, "namespace": owner.namespace, "mode": mode},
            headers={"If-Match": f'"{etag}"', **_fenced(fence)},
            repeatable=True,
        )
        self._door.call(request, accept=frozenset({404}))

    def run_status(self, run_id: str) -> RunStatus:
        """The newest status of a run."""
        request = Request("GET", _run_path(run_id), repeatable=True)
        return _parse(RunStatus, self._door.call(request).text, request)

    def run_events(self, run_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """Events after `after`, oldest first."""
        request = Request(
            "GET",
            f"{_run_path(run_id)}/events",
            params={"after": str(after)},
            headers={"Accept": "application/x-ndjson"},
            repeatable=True,
        )
        for line in self._door.lines(request):
            yield _parse(StoredEvent, line, request)

    def stop_run(self, run_id: str) -> RunStatus:
        """Ask the run to stop; asking twice is the same as once."""
        request = Request("POST", f"{_run_path(run_id)}/stop", repeatable=True)
        return _parse(RunStatus, self._door.call(request).text, request)

    def run_logs(self, run_id: str, *, after: int = 0) -> bytes:
        """What the run's workers printed so far, from byte `after` on; a character at its end may be half there."""
        request = Request(
            "GET",
            f"{_run_path(run_id)}/logs",
            {"after": str(after)} if after else {},
            repeatable=True,
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        return self._door.call(request).content

    def revisions(self, deployment: str, namespace: str) -> tuple[Revision, ...]:
        """Every rollout of a deployment, oldest first."""
        path = f"{_deployment_path(deployment)}/revisions"
        request = Request("GET", path, {"namespace": namespace}, repeatable=True)
        return _parse_any(_REVISIONS, self._door.call(request).text, request)

    def rollback(self, deployment: str, owner: Owner, to: int | None) -> ResourceDocument:
        """Hold a deployment at an earlier revision; None: at the one that served before."""
        body = _model_body(RollbackRequest(owner=owner, to=to))
        request = Request("POST", f"{_deployment_path(deployment)}/rollback", headers=dict(JSON), body=body)
        return _parse(ResourceDocument, self._door.call(request).text, request)

    def resume(self, address: Address, owner: Owner) -> ResourceDocument:
        """End a hold: try a failed rollout again, let a run that was stopped or has failed go on."""
        body = _model_body(ResumeRequest(owner=owner))
        path = f"{API}/{address.kind}s/{quote(address.name, safe='')}/resume"
        request = Request("POST", path, headers=dict(JSON), body=body, repeatable=True)
        return _parse(ResourceDocument, self._door.call(request).text, request)

    def tiers(self) -> tuple[Tier, ...]:
        """The compute classes of the server."""
        request = Request("GET", f"{API}/tiers", repeatable=True)
        return _parse_any(_TIERS, self._door.call(request).text, request)

    def workers(self) -> tuple[WorkerStatus, ...]:
        """Who does the jobs of the server, here and on other machines."""
        request = Request("GET", f"{API}/workers", repeatable=True)
        return _parse_any(_WORKERS, self._door.call(request).text, request)

    def healthy(self, *, timeout_s: float = 2.0) -> bool:
        """Whether `/healthz` says yes and the server is not about to stop; raises when nobody answers."""
        request = Request("GET", "/healthz", read_timeout_s=timeout_s)
        answer = self._door.call(request, accept=frozenset({500, 502, 503, 504}))
        return answer.is_success and not _parse_any(_HEALTH, answer.text, request).draining

    def generate_stream(
        self,
        deployment: str,
        prompt: str,
        params: Mapping[str, Any] = MappingProxyType({}),
        session: str | None = None,
    ) -> Iterator[str]:
        """Text as the deployment writes it; within a session it knows what was said before."""
        body = {"prompt": prompt, "params": dict(params), **({"session_id": session} if session else {})}
        request = Request(
            "POST",
            f"/i/{quote(deployment, safe='')}/generate_stream",
            headers={**JSON, "Accept": "text/plain"},
            body=json_body(body),
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        for chunk in self._door.text(request):
            if chunk.startswith(STREAM_ERROR):
                said = chunk.removeprefix(STREAM_ERROR).strip().removesuffix("]")
                raise PlatformError(f"deployment {deployment}: {said}")
            yield chunk

    def _verified(self, digest: str) -> int:
        path = _blob_path(digest)
        request = Request("HEAD", path, {"verify": "true"}, repeatable=True, read_timeout_s=UPLOAD_TIMEOUT_S)
        return self._door.call(request, accept=frozenset(UNSOUND)).status_code

    def _has_blob(self, digest: str) -> bool:
        request = Request("HEAD", _blob_path(digest), repeatable=True)
        return self._door.call(request, accept=frozenset({404})).status_code != 404


def _observed(document: StateDocument) -> ObservedState:
    foreign = dict(line.split(" ", 1) for line in document.foreign)
    return ObservedState(
        platform=HttpPlatform.name,
        lineage=document.lineage,
        etag=document.etag,
        resources=MappingProxyType({Address(r.kind, r.name): r for r in document.resources}),
        foreign=MappingProxyType({Address.parse(address): stack for address, stack in foreign.items()}),
        runs=MappingProxyType({(run.fingerprint, run.rerun): run for run in document.runs}),
        tiers=MappingProxyType({tier.id: tier for tier in document.tiers}),
        algorithms=document.algorithms,
        trainer=document.version,
        max_steps=document.max_steps,
        spent_this_month=document.spent_this_month,
        models=MappingProxyType({facts.id: facts for facts in document.models}),
        secrets=document.secrets,
        profiles=MappingProxyType({one.content: one for one in document.profiles}),
    )


def _parse(model: type[Document], text: str | bytes, request: Request) -> Document:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise _unreadable(request, error) from error


def _read_state(pieces: Iterable[bytes], request: Request) -> StateDocument:
    try:
        return read_state(pieces)
    except ValidationError as error:
        raise _unreadable(request, error) from error
    except ValueError as error:
        raise PlatformError(f"{request.path} answered no JSON: {error}") from error


Parsed = TypeVar("Parsed")


def _parse_any(adapter: TypeAdapter[Parsed], text: str, request: Request) -> Parsed:
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise _unreadable(request, error) from error


def _unreadable(request: Request, error: ValidationError) -> PlatformError:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return PlatformError(
        f"{request.method} {request.path} answered something this version does not understand "
        f"({place}: {first['msg']}); is the server of another version?"
    )


def _model_body(model: Frozen) -> Any:
    data = model.model_dump_json().encode()
    return lambda: data


def _blob_path(digest: str) -> str:
    return f"{API}/blobs/{quote(digest, safe=':')}"


def _resource_path(address: Address) -> str:
    return f"{API}/resources/{quote(address.kind, safe='')}/{quote(address.name, safe='')}"


def _deployment_path(name: str) -> str:
    return f"{API}/deployments/{quote(name, safe='')}"


def _lease_path(lease_id: str) -> str:
    return f"{API}/leases/{quote(lease_id, safe='')}"


def _fenced(fence: int | None) -> dict[str, str]:
    return {} if fence is None else {FENCE: str(fence)}


def _run_path(run_id: str) -> str:
    return f"{API}/runs/{quote(run_id, safe='')}"
