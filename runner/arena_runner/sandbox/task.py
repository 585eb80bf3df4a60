"""A file of ours that works with the user's files inside one sandboxed process, call by call.

Rewards are many equal calls on several processes (`pool.RewardPool`); a task is one process that keeps what it has
made between its calls.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from arena_gitops.errors import ArenaError
from arena_runner.sandbox.box import Box
from arena_runner.sandbox.limits import Limits
from arena_runner.sandbox.packages import python_with
from arena_runner.sandbox.process import Ended, Hung, Process, Program

FUNCTION = "run"


class TaskError(ArenaError):
    """The process is gone, or took too long: nothing more can be asked of this task."""


class Task:
    """A context manager; `call` asks for one stage after the other."""

    def __init__(
        self, files: Path, names: tuple[str, ...], driver: Path, requirements: tuple[str, ...], limits: Limits
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            files: folder with the user's files; the driver is copied into it.
            names: those files, by POSIX path.
            driver: our file, with a function `run(stage, options as JSON, "")` that gives JSON values.
            requirements: packages of an environment of their own; without any, this interpreter's are there.
            limits: ceilings of the process.
        """
        shutil.copyfile(driver, files / driver.name)
        self._files, self._names, self._driver = files, (*names, driver.name), driver.name
        self._requirements, self._limits = requirements, limits
        self._box: Box | None = None
        self._process: Process | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        python = python_with(self._requirements, entry="requirements.txt", whose="the environment")
        self._box = Box.make(self._files, self._names)
        own = python or Path(sys.executable)
        program = Program(self._driver, FUNCTION, python=own, answers="value")
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
