"""One sandboxed process seen from outside: start it, send calls, wait no longer than allowed, kill all of it."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from arena_runner.sandbox.box import Box
from arena_runner.sandbox.limits import MIB, Limits, Wall

CHILD = Path(__file__).with_name("child.py")
LARGEST_FRAME = 16 * MIB

Frame = dict[str, Any]


class Hung(Exception):  # noqa: N818 - an event the pool turns into a RewardError
    """No answer within the time allowed."""


class Ended(Exception):  # noqa: N818 - an event the pool turns into a RewardError
    """The process is gone; the text says how it went."""


def _ready(descriptor: int, event: int, timeout_s: float) -> bool:
    """Whether it can be read or written now, or can be no more; for a process with any number of open files."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


@dataclass(frozen=True, slots=True)
class Program:
    """What to run in a sandbox, and with what."""

    entry: str
    function: str
    network: Literal["none", "full"] = "none"
    secrets: Mapping[str, str] | None = None
    python: Path | None = None
    """interpreter of the reward's own virtual environment; None means the bare interpreter"""
    answers: Literal["score", "value"] = "score"
    """what the function gives: a score, or any JSON"""
    shared: tuple[int, ...] = ()
    """descriptors of memory that both sides see, under the same numbers inside"""
    watched: bool = False
    """whether every answer says what the call took and touched"""


class Output:
    """Keeps the first bytes of everything printed and drops the rest, so that nobody blocks on a full pipe."""

    def __init__(self, descriptor: int, keep: int) -> None:
        self._descriptor, self._keep = descriptor, keep
        self._kept = bytearray()
        self._dropped = 0
        self._thread = threading.Thread(target=self._drain, daemon=True, name="sandbox-output")
        self._thread.start()

    def _drain(self) -> None:
        while data := os.read(self._descriptor, 1 << 16):
            room = max(0, self._keep - len(self._kept))
            self._kept += data[:room]
            self._dropped += max(0, len(data) - room)
        os.close(self._descriptor)

    def text(self) -> str:
        """What was printed so far, and how much more there was."""
        kept = self._kept.decode("utf-8", "replace")
        return f"{kept}\n({self._dropped} more bytes were dropped)" if self._dropped else kept

    def finish(self) -> None:
        """Wait for the end of the output; a process that escaped a kill may hold it open, so not for ever."""
        self._thread.join(timeout=1.0)


class Process:
    """A running child. Not thread-safe: one caller at a time."""

    def __init__(self, program: Program, box: Box, limits: Limits) -> None:
        self._limits = limits
        self.calls = 0
        self.walls: tuple[Wall, ...] = ()
        self.place: tuple[str, int] = (program.entry, 1)
        self._inner_pid: int | None = None
        self._buffer = bytearray()
        self._dead = False
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        output_read, output_write = os.pipe()
        try:
            self._popen = subprocess.Popen(
                [
                    *interpreter(program),
                    str(CHILD),
                    str(request_read),
                    str(reply_write),
                    config(program, box, limits),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                cwd=box.files,
                env=environment(program, box),
                pass_fds=(request_read, reply_write, *program.shared),
                start_new_session=True,
            )
        finally:
            for descriptor in (request_read, reply_write, output_write):
                os.close(descriptor)
        os.set_blocking(self._requests, False)
        self.output = Output(output_read, limits.output_bytes)

    def load(self) -> Frame:
        """Wait until the user's module is imported; the `ready` or `error` frame.

        The process that stays outside says who the inner one is, and on a busy machine it may say so last:
        nothing is answered before that, or its frame would be taken for an answer of the first call.
        """
        deadline = time.monotonic() + self._limits.import_timeout_s
        result: Frame | None = None
        while result is None or self._inner_pid is None:
            frame = self._receive(deadline)
            if "pid" in frame:
                self._inner_pid = int(frame["pid"])
            elif "walls" in frame:
                self.walls = tuple(Wall(str(n), bool(r), str(w)) for n, r, w in frame["walls"])
            else:
                result = frame
        if "file" in result:
            self.place = (str(result["file"]), int(result["line"]))
        return result

    def call(self, batch: Sequence[tuple[str, str, str]]) -> Iterator[Frame]:
        """Send the calls at once and yield one answer each; the clock starts anew with every answer."""
        self.ask(batch)
        for _ in batch:
            yield self.answer()

    def ask(self, batch: Sequence[tuple[str, str, str]]) -> None:
        """Send calls; `answer` once for each."""
        self._send({"calls": [list(arguments) for arguments in batch]})

    def answer(self) -> Frame:
        """The next answer; the clock starts now."""
        frame = self._receive(time.monotonic() + self._limits.call_timeout_s)
        self.calls += 1
        return frame

    def _send(self, frame: Frame) -> None:
        body = json.dumps(frame).encode()
        data = memoryview(struct.pack(">I", len(body)) + body)
        deadline = time.monotonic() + self._limits.call_timeout_s
        while data:
            if not _ready(self._requests, select.POLLOUT, deadline - time.monotonic()):
                raise Hung
            try:
                data = data[os.write(self._requests, data) :]
            except BrokenPipeError:
                raise Ended(self._how()) from None

    def _receive(self, deadline: float) -> Frame:
        while True:
            if len(self._buffer) >= 4:
                size = struct.unpack(">I", self._buffer[:4])[0]
                if size > LARGEST_FRAME:
                    raise Ended("it wrote into the sandbox's own channel")
                if len(self._buffer) >= 4 + size:
                    return self._frame(size)
            self._read(deadline)

    def _frame(self, size: int) -> Frame:
        body = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        try:
            frame = json.loads(body)
        except ValueError:
            raise Ended("it wrote into the sandbox's own channel") from None
        if not isinstance(frame, dict):
            raise Ended("it wrote into the sandbox's own channel")
        return frame

    def _read(self, deadline: float) -> None:
        while not _ready(self._replies, select.POLLIN, 0.1):
            # A fork may hold the pipe open after the process itself has gone: look at the process too.
            if self._popen.poll() is not None and not _ready(self._replies, select.POLLIN, 0):
                raise Ended(self._how())
            if time.monotonic() > deadline:
                raise Hung
        data = os.read(self._replies, 1 << 16)
        if not data:
            raise Ended(self._how())
        self._buffer += data

    def _how(self) -> str:
        try:
            code = self._popen.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return "it closed the sandbox's own channel"
        number = -code if code < 0 else code - 128
        if number in {item.value for item in signal.Signals}:
            return f"it ended the process (signal {signal.Signals(number).name})"
        return f"it ended the process (exit code {code})"

    def kill(self) -> None:
        """End the process, all its descendants and the pipes to them; a second call does nothing."""
        if self._dead:
            return
        self._dead = True
        # The first process of the namespace: with it the kernel kills every other one in there.
        for pid, send in ((self._inner_pid, os.kill), (self._popen.pid, os.killpg)):
            if pid is not None and self._popen.returncode is None:
                try:
                    send(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self._popen.wait()
        os.close(self._requests)
        os.close(self._replies)
        self.output.finish()


def interpreter(program: Program) -> list[str]:
    """The command of the interpreter: safe paths, no user site; bare unless the reward has requirements."""
    if program.python is not None:
        return [str(program.python), "-s", "-P"]
    return [str(getattr(sys, "_base_executable", sys.executable)), "-s", "-P", "-S"]


def environment(program: Program, box: Box) -> dict[str, str]:
    """A scrubbed environment: nothing of ours but what the reward names."""
    return {
        "HOME": str(box.temporary),
        "TMPDIR": str(box.temporary),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",  # the order of sets must not differ between workers
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        **(program.secrets or {}),
    }


def config(program: Program, box: Box, limits: Limits) -> str:
    """What `child.py` reads from its command line."""
    calls = limits.calls_per_process * limits.call_timeout_s
    prefixes = {sys.base_prefix, sys.base_exec_prefix, str(Path(sys.base_prefix).resolve())}
    venv = {str(program.python.parent.parent)} if program.python else set()
    return json.dumps(
        {
            "box": str(box.root),
            "root": str(box.files),
            "entry": program.entry,
            "function": program.function,
            "answers": program.answers,
            "watched": program.watched,
            "network": program.network,
            "uid": box.uid,
            "mount": str(box.mount),
            "temporary": str(box.temporary),
            "visible": sorted(prefixes | venv),
            "limits": {**asdict(limits), "cpu_s": limits.import_timeout_s + calls},
        }
    )
