"""The one shape of every refusal."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi.responses import JSONResponse

from arena_gitops.spec.wire import ErrorBody
from arena_runner.server.refusals import AGAIN_S


def error(
    status: int,
    code: str,
    message: str,
    details: Mapping[str, str] | None = None,
    *,
    retry_after_s: int | None = None,
) -> JSONResponse:
    """An error answer."""
    body = ErrorBody(
        code=code, message=message.replace("[", "(").replace("]", ")"), details=dict(details or {})
    )
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if after := retry_after_s or (AGAIN_S if status == 503 else None):
        headers["Retry-After"] = str(after)
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)
