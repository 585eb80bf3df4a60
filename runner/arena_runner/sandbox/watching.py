"""What a call costs and what it touches, told with its answer where a check asks for it.

Standard library only, loaded by `child.py` beside it. Python's audit events say what a call tries, also where a wall
refuses it or the user's code swallows the refusal.
"""

# pathlib would cost every worker half of its start-up time
from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable

Frame = dict[str, object]
MOST, LONGEST = 5, 80
"""different things told of a call, and characters of each"""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
STARTS, CHANGES, CONNECTS = "starts", "changes", "connects to"
RUNS = "runs what the model wrote as code"
EVENTS = {
    "subprocess.Popen": STARTS,
    "os.system": STARTS,
    "os.exec": STARTS,
    "os.posix_spawn": STARTS,
    "os.fork": STARTS,
    "os.remove": CHANGES,
    "os.rename": CHANGES,
    "os.mkdir": CHANGES,
    "os.rmdir": CHANGES,
    "os.chmod": CHANGES,
    "os.putenv": "sets the environment variable",
    "socket.connect": CONNECTS,
    "socket.getaddrinfo": CONNECTS,
}


class Watch:
    """Listens for the rest of the process: an audit hook cannot be taken away."""

    def __init__(self) -> None:
        self._listening = False
        self._touched: dict[str, None] = {}
        self._said = ""
        self._compiled: set[str] = set()
        """names under which text of the call's own arguments was compiled"""
        sys.addaudithook(self._heard)

    def asked(self, ask: Callable[[list[str]], Frame], arguments: list[str]) -> Frame:
        """Call, and tell with the answer what it took."""
        self._touched, self._compiled = {}, set()
        self._said = arguments[-1] if arguments else ""
        self._listening = True
        begun = time.perf_counter()
        try:
            answer = ask(arguments)
        finally:
            self._listening = False
        answer["watched"] = {
            "seconds": time.perf_counter() - begun,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "touched": list(self._touched),
        }
        return answer

    def _heard(self, event: str, values: tuple[object, ...]) -> None:
        if self._listening and len(self._touched) < MOST and (said := self._ran(event, values)):
            self._touched[said[:LONGEST]] = None

    def _ran(self, event: str, values: tuple[object, ...]) -> str:
        """As `_told`; also whether what the model wrote is run, by whatever way it came there."""
        if event == "compile" and (text := _source(values[0])) and text in self._said:
            self._compiled.add(str(values[1]))
        elif event == "exec" and getattr(values[0], "co_filename", None) in self._compiled:
            return RUNS
        return _told(event, values)


def _source(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text.strip() if isinstance(text, str) else ""


def _told(event: str, values: tuple[object, ...]) -> str:
    """What an event says to people; nothing for what leaves no trace."""
    if event == "open":
        path, _, flags = (*values, None, None, None)[:3]
        writes = isinstance(flags, int) and flags & WRITING
        ours = isinstance(path, str) and "__pycache__" not in path
        return f"writes {path}" if writes and ours else ""
    if event not in EVENTS:
        return ""
    named = values[1:2] if event == "socket.connect" else values[:1]
    what = os.fsdecode(named[0]) if named and isinstance(named[0], str | bytes) else str(*named)
    return f"{EVENTS[event]} {what}" if what else f"{EVENTS[event]} a process"
