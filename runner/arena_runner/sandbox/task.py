"""A file of ours that works with the user's files inside one sandboxed process, call by call.

Rewards are many equal calls on several processes (`pool.RewardPool`); a task is one process that keeps what it has
made between its calls.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from arena_gitops.errors import ArenaError
from arena_runner.sandbox.box import Box
from arena_runner.sandbox.limits import Limits
from arena_runner.sandbox.process import Ended, Hung, Process, Program

FUNCTION = "run"


class TaskError(ArenaError):
    """The process is gone, or took too long: nothing more can be asked of this task."""


class Task:
    """A context manager; `call` asks for one stage after the other."""

    def __init__(
        self,
        files: Path,
        names: tuple[str, ...],
        code: Sequence[Path],
        python: Callable[[], Path],
        limits: Limits,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            files: folder with the user's files; our own are copied into it.
            names: those files, by POSIX path.
            code: our files; the first has a function `run(stage, options as JSON, "")` that gives JSON values.
            python: makes the interpreter.
            limits: ceilings of the process.
        """
        for ours in code:
            shutil.copyfile(ours, files / ours.name)
        self._files, self._names = files, (*names, *(ours.name for ours in code))
        self._driver, self._python, self._limits = code[0].name, python, limits
        self._box: Box | None = None
        self._process: Process | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        python = self._python()
        self._box = Box.make(self._files, self._names)
        program = Program(self._driver, FUNCTION, python=python, answers="value")
        self._process = Process(program, self._box, self._limits)
        try:
            frame = self._process.load()
        except (Hung, Ended) as problem:
            self.__exit__(None, None, None)
            raise TaskError(f"the sandbox did not start: {problem or 'it took too long'}") from problem
        if "error" in frame:
            self.__exit__(None, None, None)
            raise TaskError(f"the sandbox did not start: {frame['error']['message']}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the process and delete the box."""
        if self._process is not None:
            self._process.kill()
        if self._box is not None:
            self._box.remove()

    def call(self, stage: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """What the stage answers; TaskError when it hangs or ends the process."""
        if self._process is None:
            raise RuntimeError("a Task is used inside `with`")
        try:
            (frame,) = self._process.call([(stage, json.dumps(options), "")])
        except Hung as problem:
            seconds = self._limits.call_timeout_s
            raise TaskError(f"it took longer than {seconds:g} s") from problem
        except Ended as problem:
            raise TaskError(str(problem)) from problem
        match frame:
            case {"value": dict(value)}:
                return value
            case {"error": {"message": str(message)}}:
                raise TaskError(message)
        raise TaskError("it wrote into the sandbox's own channel")
