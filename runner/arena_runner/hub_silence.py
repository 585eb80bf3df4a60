"""Whether the Hugging Face hub said no, or said nothing: the first is for people to mend, the second may pass."""

from __future__ import annotations

CLIENTS = frozenset({"httpx", "httpx2", "requests"})
"""Libraries whose errors the hub's own library lets through, by its version."""

BUSY = frozenset({408, 429})


def unanswered(error: BaseException) -> bool:
    """Whether the same question may be answered later."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        return unanswered(error.__cause__)
    if isinstance(error, OfflineModeIsEnabled):
        return False
    if isinstance(error, HfHubHTTPError):
        status = getattr(error.response, "status_code", 0)
        return status >= 500 or status in BUSY
    return isinstance(error, ConnectionError | TimeoutError) or _of_a_client(error)


def _of_a_client(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in CLIENTS
