"""Limits in seconds, on a machine that others may be using too.

What must happen within five seconds is given five times what a moment's work takes here now, over what it takes alone:
exactly five where nobody else is at work, and no verdict on somebody else's load where somebody is.
"""

from __future__ import annotations

import time

LONG = 110.0
"""For what has no limit of its own and only must not hang for ever."""
MOMENT_S = 0.2


def slowed() -> float:
    """How many times longer than alone work takes now; at least 1."""
    began, worked = time.monotonic(), time.thread_time()
    while time.thread_time() - worked < MOMENT_S:
        sum(range(1000))
    return max((time.monotonic() - began) / (time.thread_time() - worked), 1.0)
