"""Every request: its id, its line in the log, its place in the metrics, and an answer even when a route fails.

A caller may send `X-Request-Id`; what is no plain short word is replaced, so that nobody can write into our log.
The id is on the answer and on every line that the request causes. Lines name the route, never the path or the query.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena_gitops.spec.wire import REQUEST_ID
from arena_runner import logs
from arena_runner.server.api.answers import error
from arena_runner.server.faults import Fault, fault_of

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
HEADER = REQUEST_ID.lower().encode()
UNMATCHED = "(no route)"
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines; their lines are for those who debug."""

log = logging.getLogger("arena_runner.requests")


class Requests:
    """Outermost of our middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Number, time, tell."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        number = accepted(dict(scope["headers"]).get(HEADER))
        with logs.about(request_id=number):
            await _Request(scope, number).answer(self.app, receive, send)


def accepted(sent: bytes | None) -> str:
    """The id that was sent if it is a plain word, else a new one."""
    text = (sent or b"").decode("latin-1")
    return text if PLAIN.fullmatch(text) else uuid.uuid4().hex


def note_caller(scope: Scope, subject: str) -> None:
    """Say who speaks, for the line that tells of the request."""
    scope.setdefault("state", {})["subject"] = subject


class _Request:
    """One of them."""

    def __init__(self, scope: Scope, number: str) -> None:
        self.scope, self.number = scope, number
        self.status: int | None = None
        self.began = time.perf_counter()

    async def answer(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        async def numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() != HEADER]
                message["headers"] = [*kept, (HEADER, self.number.encode())]
            await send(message)

        try:
            await app(self.scope, receive, numbered)
        except Exception as problem:
            log.exception("the request failed", extra=self._facts())
            if self.status is not None:
                raise  # the answer has begun: cutting it off is all that can be said
            text = f"the server failed on this request; its log has the reason under {self.number}"
            fault = fault_of(problem) or Fault(500, "internal", text)
            answer = error(fault.status, fault.code, fault.message, {"request_id": self.number})
            await answer(self.scope, receive, numbered)
        finally:
            self._tell()

    def _facts(self) -> dict[str, Any]:
        route = getattr(self.scope.get("route"), "path", UNMATCHED)
        subject = self.scope.get("state", {}).get("subject")
        named = self.scope.get("path_params", {})
        about = {
            name: named[name]
            for name in ("run_id", "segment", "deployment")
            if PLAIN.fullmatch(str(named.get(name, "")))
        }
        return {"method": self.scope["method"], "route": route, "subject": subject, **about}

    def _tell(self) -> None:
        facts, seconds = self._facts(), time.perf_counter() - self.began
        status = self.status or 499  # the caller hung up before there was an answer
        level = logging.DEBUG if facts["route"] in QUIET else logging.INFO
        log.log(level, "request", extra={**facts, "status": status, "ms": round(seconds * 1000, 1)})
        meters = getattr(self.scope["app"].state, "meters", None)
        if meters is not None:
            meters.request(facts["method"], facts["route"], status, seconds)
