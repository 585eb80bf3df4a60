"""The one shape of every refusal."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi.responses import JSONResponse

from arena_gitops.spec.wire import ErrorBody


def error(status: int, code: str, message: str, details: Mapping[str, str] | None = None) -> JSONResponse:
    """An error answer."""
    body = ErrorBody(
        code=code, message=message.replace("[", "(").replace("]", ")"), details=dict(details or {})
    )
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}.get(status)
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)
