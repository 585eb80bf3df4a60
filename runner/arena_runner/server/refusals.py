"""`RefusedError`: the one exception services raise to say no; the API turns it into an `ErrorBody`."""

from __future__ import annotations

from collections.abc import Mapping

from arena_gitops.errors import ArenaError

AGAIN_S = 2
"""When to ask a server again that is not ready."""


class RefusedError(ArenaError):
    """A request that is understood and refused: HTTP status, stable code, a sentence for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Mapping[str, str] | None = None,
        *,
        retry_after_s: int | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message.replace("[", "(").replace("]", ")")
        self.details = dict(details or {})
        self.retry_after_s = retry_after_s or (AGAIN_S if status == 503 else None)
        super().__init__(self.message)


def not_found(what: str) -> RefusedError:
    """404 for a thing that does not exist."""
    return RefusedError(404, "not-found", f"{what} does not exist on this server")


def stale(message: str) -> RefusedError:
    """412: the world moved since the caller looked."""
    return RefusedError(412, "stale", message)
