"""Runs inside the sandbox, beside the user's environment: whose fault something is, where, and since when it runs.

What the drivers of checks and of training share. All of them are copied into the box, and the runner itself never
imports them. Standard library only.
"""

# pathlib costs start-up time, so:
# ruff: noqa: PTH100, PTH120
from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

Json = dict[str, Any]
HERE = os.path.dirname(os.path.abspath(__file__))
OURS = {"agents_code.py", "box_code.py", "environment_driver.py", "world_driver.py"}
LONGEST = 300
EARLIER = 0.9
"""share of the time of a call after which its line is named, instead of the process being killed without one"""


class WrongError(Exception):
    """User code did not raise, but what it gave is not what it should have been."""

    def __init__(self, text: str, culprit: Any = None) -> None:
        super().__init__(text)
        self.culprit = culprit
        """the function that gave it"""


class TooLongError(BaseException):
    """User code has had its time; no `except Exception` of theirs keeps it."""


def fault(error: BaseException) -> Json:
    """An exception in one line, with the deepest line that is the user's."""
    file, line = "", 0
    for frame in traceback.extract_tb(error.__traceback__):
        name = relative(frame.filename)
        if name and name not in OURS:
            file, line = name, frame.lineno or 0
    if isinstance(error, SyntaxError) and relative(error.filename or ""):
        file, line = relative(str(error.filename)), error.lineno or 0
    if isinstance(error, WrongError):
        file, line = place_of(error.culprit)
    return {"error": said(error), "file": file, "line": line}


def said(error: BaseException) -> str:
    """What is wrong, in words."""
    text = clean(str(error))
    if isinstance(error, WrongError | TooLongError):
        return text
    if isinstance(error, ModuleNotFoundError):
        return f"ModuleNotFoundError: {text} (name its package in requirements.txt; own modules lie beside the entry)"
    if isinstance(error, MemoryError):
        return f"MemoryError: {text or 'it wants more memory than an environment may have'}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def relative(filename: str) -> str:
    """The name of a file of the box; empty for any other."""
    path = os.path.abspath(filename) if filename else ""
    return path[len(HERE) + 1 :] if path.startswith(HERE + os.sep) else ""


def place_of(culprit: Any) -> tuple[str, int]:
    """Where a function or class of the user begins; nothing for anybody else's."""
    if culprit is None:
        return "", 0
    found = inspect.unwrap(getattr(culprit, "__func__", culprit))
    code = getattr(found, "__code__", None)
    if code is not None:
        return (name, code.co_firstlineno) if (name := relative(code.co_filename)) else ("", 0)
    try:
        name = relative(inspect.getsourcefile(found) or "")
        return (name, inspect.getsourcelines(found)[1]) if name else ("", 0)
    except (TypeError, OSError):
        return "", 0


def clean(text: str) -> str:
    """One bounded line, without terminal colours."""
    parts = text.replace("\x1b[33m", "").replace("\x1b[0m", "").split()
    line = " ".join(parts)
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what runs too long at its very line; code that never comes back to Python is killed from outside."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds * EARLIER)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def paid(reward: Any, culprit: Any) -> float:
    """The reward as a finite number."""
    try:
        value = float(reward)
    except (TypeError, ValueError):
        raise WrongError(f"the reward is {clean(repr(reward))}, which is no number", culprit) from None
    if not math.isfinite(value):
        raise WrongError(f"the reward is {value}, which is no finite number", culprit)
    return value


def maker(entrypoint: str, config: Json) -> Callable[..., Any]:
    """Import the module and find the class; what makes one, with more arguments if need be."""
    module_name, _, name = entrypoint.partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, name, None)
    if not callable(found):
        names = sorted(key for key, value in vars(module).items() if inspect.isclass(value))
        raise TypeError(f"{module_name} has no class {name}; it has: {', '.join(names) or 'none'}")
    return lambda **more: found(**{**config, **more})


sys.dont_write_bytecode = True
