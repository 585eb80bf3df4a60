"""Long answers as the client reads them: one JSON object a line, of which the last says `completed` or `failed`."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from typing import Any

from fastapi.responses import StreamingResponse

from arena_gitops.spec.wire import CheckResult
from arena_runner.server.api.arena.door import plain
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services.remarks import Done, Remark

NDJSON = "application/x-ndjson"
Step = Remark | CheckResult | Done

log = logging.getLogger(__name__)


def answer(stage: str, steps: Iterator[Step]) -> StreamingResponse:
    """Stream the steps; `stage` names what is being done."""
    return StreamingResponse(lines(stage, steps), media_type=NDJSON)


def lines(stage: str, steps: Iterator[Step]) -> Iterator[bytes]:
    """The lines; however the steps end, the last line says how."""
    ended = False
    try:
        for step in steps:
            ended = isinstance(step, Done)
            yield _line(stage, **_said(step))
        if not ended:
            yield _failed(stage, f"{stage} has ended without a result", "internal")
    except RefusedError as problem:
        yield _failed(stage, problem.message, problem.code)
    except Exception:
        number = uuid.uuid4().hex
        log.exception("%s failed (%s)", stage, number)
        message = f"the server failed on this request; its log has the reason under {number}"
        yield _failed(stage, message, "internal")


def _said(step: Step) -> dict[str, Any]:
    match step:
        case Remark(message, warning):
            more: dict[str, Any] = {} if warning else {"level": "secondary-info"}
            return {"kind": "warning" if warning else "status", "message": message, **more}
        case CheckResult():
            return _verdict(step)
        case Done(message, detail):
            return {"message": message, "status": "completed", "detail": detail}


def _verdict(result: CheckResult) -> dict[str, Any]:
    place = f"{result.file}:{result.line}: " if result.file and result.line else ""
    verdict: dict[str, Any] = {"success": result.status != "fail", "warnings": []}
    if result.status == "warn":
        verdict["warnings"] = [plain(result.message)]
    elif result.status == "fail":
        verdict["error"] = plain(place + result.message)
    check = plain(f"{result.address} {result.name}")
    return {
        "kind": "check",
        "message": result.message or check,
        "detail": {"check": check, "result": verdict},
    }


def _failed(stage: str, message: str, code: str) -> bytes:
    return _line(stage, message=message, status="failed", detail={"error_code": code})


def _line(stage: str, *, message: str, kind: str = "status", status: str = "running", **more: Any) -> bytes:
    line = {"kind": kind, "stage": stage, "status": status, "message": plain(message), **more}
    return json.dumps(line).encode() + b"\n"
