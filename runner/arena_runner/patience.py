"""Calls that are repeated while the server is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from arena_gitops.errors import PlatformUnreachableError
from arena_runner.server_link import UnreachableError

T = TypeVar("T")


def patiently(call: Callable[[], T], patience_s: float) -> T:
    """The call's answer; PlatformUnreachableError when there was none for so long."""
    deadline, wait = time.monotonic() + patience_s, 0.2
    while True:
        try:
            return call()
        except UnreachableError as error:
            if time.monotonic() + wait > deadline:
                raise PlatformUnreachableError(str(error)) from error
        time.sleep(wait)
        wait = min(2 * wait, 10.0)
