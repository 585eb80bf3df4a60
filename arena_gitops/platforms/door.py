"""The one HTTP door: every request of the light side goes out here, and every answer comes in here.

It adds the token, a request id and time limits, retries what is safe to repeat, and turns refusals into
`arena_gitops.errors`. It knows no route: `platforms.http` does. The token goes to the door's own origin and
nowhere else, so redirects are not followed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from arena_gitops import __version__
from arena_gitops.errors import (
    ArenaError,
    AuthError,
    BlockedError,
    LeaseLostError,
    LockedError,
    PlatformError,
    PlatformRejectedError,
    PlatformUnreachableError,
    Rejection,
    StaleError,
)
from arena_gitops.spec.wire import REQUEST_ID, ErrorBody

if TYPE_CHECKING:
    import httpx
    from tenacity import RetryCallState

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
ATTEMPTS = 5
PIECE = 1 << 16
GATEWAY_STATUSES = frozenset({502, 503, 504})
"""Answers of something between us and the server, or of a server that is starting: worth another try."""

LEASE_LOST = "lease-lost"
"""423 code: not locked by somebody, but no longer by us."""
BLOCKED_CODES = frozenset({"owned-by-other", "protected"})
"""409 codes that mean `somebody decided that you may not`; any other 409 is a plain refusal."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call: what is sent, and whether sending it twice is the same as once."""

    method: str
    path: str
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    """a list is sent as the same name several times"""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[], bytes | Iterator[bytes]] | None = None
    """called once per attempt, so that a streamed file starts again from its first byte"""
    repeatable: bool = False
    read_timeout_s: float | None = READ_TIMEOUT_S
    """None for a stream that may be silent for as long as it likes"""
    number: str = ""
    """names the call in the server's log, the same for every attempt; made for each call unless given"""


def json_body(value: Any) -> Callable[[], bytes]:
    """A request body of JSON; `Request.headers` must say so (`JSON`)."""
    data = json.dumps(value, ensure_ascii=False).encode()
    return lambda: data


def form_body(fields: Mapping[str, str]) -> Callable[[], bytes]:
    """A request body of a form; `Request.headers` must say so (`FORM`)."""
    data = urlencode(fields).encode()
    return lambda: data


JSON: Mapping[str, str] = {"Content-Type": "application/json"}
FORM: Mapping[str, str] = {"Content-Type": "application/x-www-form-urlencoded"}

Token = str | Callable[[], str] | None
"""What opens the server; a function where it must be renewed now and then, asked before every request."""


class Door:
    """A connection to one origin with one token."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        attempts: int = ATTEMPTS,
        backoff_s: float = 0.2,
        patience_s: float | None = None,
    ) -> None:
        """`patience_s` replaces every request's own time limit."""
        import httpx

        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise PlatformUnreachableError(
                f"{url!r} is no address of a server; expected http://… or https://…"
            )
        self.url = url.rstrip("/")
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._patience_s = patience_s
        headers = {"User-Agent": f"arena-gitops/{__version__}", "Accept": "application/json"}
        self._token = token
        self._client = httpx.Client(
            base_url=self.url,
            headers=headers,
            follow_redirects=False,
            # A proxy set for the internet has no way to this machine's own loopback.
            trust_env=not is_loopback(parts.hostname),
        )

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def call(self, request: Request, *, accept: frozenset[int] = frozenset()) -> httpx.Response:
        """Send and return the whole answer; a refusal whose status is not in `accept` is raised."""
        with self.stream(request, accept=accept) as response:
            with _foreign(request, self.url):
                response.read()
            return response

    @contextmanager
    def stream(self, request: Request, *, accept: frozenset[int] = frozenset()) -> Iterator[httpx.Response]:
        """Send and yield the answer before its body has been read."""
        request = replace(request, number=request.number or uuid.uuid4().hex)
        response = self._open(request)
        try:
            if not response.is_success and response.status_code not in accept:
                with _foreign(request, self.url):
                    response.read()
                what = f"{request.method} {request.path}"
                raise refusal(response.status_code, response.text, what, request.number)
            yield response
        finally:
            response.close()

    @contextmanager
    def pieces(
        self, request: Request, *, accept: frozenset[int] = frozenset()
    ) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Status and content of an answer, as it arrives."""
        with self.stream(request, accept=accept) as response, _foreign(request, self.url):
            yield response.status_code, response.iter_bytes(PIECE)

    def lines(self, request: Request) -> Iterator[str]:
        """The non-empty lines of a streamed answer, as they arrive."""
        with self.stream(request) as response, _foreign(request, self.url):
            for line in response.iter_lines():
                if line.strip():
                    yield line

    def text(self, request: Request) -> Iterator[str]:
        """The chunks of a streamed text, as they arrive."""
        with self.stream(request) as response, _foreign(request, self.url):
            yield from response.iter_text()

    def _open(self, request: Request) -> httpx.Response:
        from tenacity import (
            Retrying,
            retry_if_exception,
            retry_if_result,
            stop_after_attempt,
            wait_random_exponential,
        )

        retrying = Retrying(
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=self._backoff_s, max=10 * self._backoff_s),
            retry=retry_if_exception(lambda error: _never_arrived(error, request))
            | retry_if_result(lambda answer: request.repeatable and answer.status_code in GATEWAY_STATUSES),
            before_sleep=_close_answer,
            retry_error_callback=_last_outcome,
        )
        with _foreign(request, self.url):
            return retrying(self._send, request)

    def _send(self, request: Request) -> httpx.Response:
        import httpx

        message = self._client.build_request(
            request.method,
            request.path,
            params=dict(request.params),
            headers={**self._authorization(), **request.headers, REQUEST_ID: request.number},
            content=request.body() if request.body else None,
            timeout=self._patience_s or httpx.Timeout(request.read_timeout_s, connect=CONNECT_TIMEOUT_S),
        )
        return self._client.send(message, stream=True)

    def _authorization(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}


def is_loopback(host: str) -> bool:
    """Whether the address never leaves this machine."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _never_arrived(error: BaseException, request: Request) -> bool:
    """Whether sending again is safe: nobody has seen it, or seeing it twice makes no difference."""
    import httpx

    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return True
    return request.repeatable and isinstance(error, (httpx.NetworkError, httpx.RemoteProtocolError))


def _close_answer(state: RetryCallState) -> None:
    if state.outcome is not None and not state.outcome.failed:
        state.outcome.result().close()


def _last_outcome(state: RetryCallState) -> httpx.Response:
    if state.outcome is None:
        raise PlatformUnreachableError("no attempt was made")
    answer: httpx.Response = state.outcome.result()
    return answer


@contextmanager
def _foreign(request: Request, url: str) -> Iterator[None]:
    """Translate the client library's exceptions into ours."""
    import httpx

    try:
        yield
    except httpx.TimeoutException as error:
        raise PlatformUnreachableError(
            f"{url} did not answer {request.method} {request.path} in time"
        ) from error
    except httpx.TransportError as error:
        raise PlatformUnreachableError(f"{url} cannot be reached: {error}") from error
    except (httpx.InvalidURL, httpx.DecodingError) as error:
        raise PlatformError(f"{request.method} {request.path}: {error}") from error


def refusal(status: int, text: str, what: str, number: str = "") -> ArenaError:
    """The exception that a refusing answer stands for.

    A refusal of ours explains itself. Everything else (a failing server, a proxy, a redirect) is told with the
    request and the status, because its own words are seldom enough; a failing server also with the request's
    number, by which its log is searched.
    """
    said = " ".join(text.split())[:200]
    unexplained = f"{what} answered {status}" + (f": {said}" if said else "")
    body = _explained(text) or ErrorBody(code=f"http-{status}", message=unexplained)
    match status:
        case 401 | 403:
            return AuthError(f"{body.message} ({what} answered {status})")
        case 409 if body.code in BLOCKED_CODES:
            return BlockedError(body.message)
        case 412:
            return StaleError(body.message)
        case 423:
            lost = body.code == LEASE_LOST
            return LeaseLostError(body.message) if lost else LockedError(body.message, body.details)
        case _ if 400 <= status < 500:
            return PlatformRejectedError(Rejection(status, body.code, body.message, body.details))
        case _:
            named = f", request {number}" if number and number not in body.message else ""
            return PlatformError(f"{body.message} ({what} answered {status}{named})")


def _explained(text: str) -> ErrorBody | None:
    """A refusal in its own words: ours, or in the shape of the Arena API."""
    try:
        return ErrorBody.model_validate_json(text)
    except ValidationError:
        pass
    try:
        return _ARENA_ERROR.validate_json(text).ours
    except ValidationError:
        return None


class _ArenaError(BaseModel):
    """How the Arena API refuses: a text in `detail`, and whatever else helps beside it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    detail: str
    error_code: str

    @property
    def ours(self) -> ErrorBody:
        more = {key: _listed(value) for key, value in (self.model_extra or {}).items()}
        return ErrorBody(code=self.error_code, message=self.detail, details=more)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_ARENA_ERROR: TypeAdapter[_ArenaError] = TypeAdapter(_ArenaError)


class BehindADoor:
    """What every platform that is reached through a door has."""

    _door: Door

    @property
    def url(self) -> str:
        """Where it is."""
        return self._door.url

    @property
    def door(self) -> Door:
        """The way there, for the other API that it speaks, and for commands by name."""
        return self._door

    def close(self) -> None:
        """Drop the connections."""
        self._door.close()
