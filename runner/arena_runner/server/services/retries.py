"""What may be tried again without a person, as the experiment's `retry` says it.

Infrastructure failures (`preempted`) are tried again a few times in any case; `max` can allow more. A run that failed
by itself is held, unless `on` names `failed`. A budget that is used up is never tried again.
"""

from __future__ import annotations

from typing import Any

from arena_gitops.spec.job import FailureReason
from arena_runner.server.services.pair import RunPair

MAX_RESTARTS = 3
"""Infrastructure failures in a row, without a new resume state, after which a run is failed."""

OWN_FAULTS = (FailureReason.USER_CODE, FailureReason.OOM)


def restarts(pair: RunPair) -> int:
    """How many infrastructure failures in a row this run may have."""
    return max(MAX_RESTARTS, _allowed(pair, "preempted"))


def once_more(pair: RunPair, reason: FailureReason | None) -> bool:
    """Whether a run that failed by itself is tried again; counts the attempt."""
    if reason not in OWN_FAULTS or pair.state.retries >= _allowed(pair, "failed"):
        return False
    pair.state.retries += 1
    return True


def told(pair: RunPair) -> str:
    """Which retry this is, in words."""
    return f"retry {pair.state.retries} of {_allowed(pair, 'failed')}"


def _allowed(pair: RunPair, cause: str) -> int:
    retry: dict[str, Any] = pair.run.spec.get("retry") or {}
    most = retry.get("max")
    return most if isinstance(most, int) and cause in (retry.get("on") or ()) else 0
