"""The program inside the sandbox: raise the walls, import the user's file, answer calls until the pipe closes.

Standard library only, run by path in a bare interpreter. Three processes, so that nothing survives a kill:
this one stays outside and passes on how it ended; the first of the new namespaces reaps orphans, and when it
dies the kernel kills the rest; the third runs user code. Frames are four bytes of length and JSON, on two file
descriptors of their own: what users print goes elsewhere and cannot be mistaken for an answer.
"""

# pathlib would cost every worker half of its start-up time, so:
# ruff: noqa: PTH101, PTH100, PTH117, PTH118, PTH120
from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import json
import os
import select
import shutil
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from numbers import Real

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the cost of importing typing in every worker
if TYPE_CHECKING:
    from arena_runner.sandbox import walls, watching
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import walls
    import watching

    del sys.path[0]
    del sys.modules["walls"], sys.modules["watching"]  # a user's file may have these names

Frame = dict[str, object]
LONGEST = 400
"""characters of a user's message or value that are passed on"""


class Channel:
    """The two pipes to the parent."""

    def __init__(self, requests: int, replies: int) -> None:
        self._requests, self._replies = requests, replies
        os.set_inheritable(requests, False)
        os.set_inheritable(replies, False)

    def send(self, frame: Frame) -> None:
        """Write one frame whole."""
        body = json.dumps(frame).encode()
        data = struct.pack(">I", len(body)) + body
        while data:
            data = data[os.write(self._replies, data) :]

    def receive(self) -> Frame | None:
        """Read one frame; None when the parent has closed the pipe."""
        header = self._read(4)
        if len(header) < 4:
            return None
        body = self._read(struct.unpack(">I", header)[0])
        frame: Frame = json.loads(body)
        return frame

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = os.read(self._requests, min(size, 1 << 20))
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Unusable(Exception):  # noqa: N818 - its text is the whole message
    """The file imports, but holds no reward."""


class Reward:
    """The user's function, and where its code is."""

    def __init__(self, root: str, entry: str, name: str) -> None:
        self._root, self._entry = root, entry
        path = os.path.join(root, entry)
        sys.path[:0] = dict.fromkeys((os.path.dirname(path), root))
        # Not the file's own name: `rewards/math.py` must still be able to import the standard `math`.
        spec = importlib.util.spec_from_file_location("arena_reward", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{entry} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules["arena_reward"] = module
        spec.loader.exec_module(module)
        found = getattr(module, name, None)
        if not callable(found):
            names = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
            raise Unusable(
                f"{entry} defines no function `{name}`; its functions: {', '.join(names) or 'none'}"
            )
        self.function: Callable[..., object] = found
        self.file, self.line = self._place()
        self._accepts_three()

    def _place(self) -> tuple[str, int]:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        file = self.relative(code.co_filename) if code else None
        return (file, code.co_firstlineno) if code and file else (self._entry, 1)

    def _accepts_three(self) -> None:
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return  # a builtin or C function: the first call will tell
        try:
            signature.bind("", "", "")
        except TypeError as error:
            text = f"a reward is called as reward(question, answer, completion), this one takes {signature}"
            raise Unusable(text) from error

    def relative(self, filename: str) -> str | None:
        """The path as in the user's repository, or None for code that is not the user's."""
        inside = os.path.relpath(filename, self._root) if os.path.isabs(filename) else ".."
        return None if inside.startswith("..") else inside

    def score(self, arguments: list[str]) -> Frame:
        """Call the function; the answer or the fault as a frame."""
        try:
            value = self.function(*arguments)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its answer
            return {"error": describe(error, self._root, (self.file, self.line))}
        problem = invalid(value)
        if problem:
            return {"error": {"message": problem, "file": self.file, "line": self.line}}
        if isinstance(value, dict):
            return {"parts": {key: float(part) for key, part in value.items()}}
        return {"score": float(value)}  # type: ignore[arg-type]  # `invalid` has seen that it is a number

    def value(self, arguments: list[str]) -> Frame:
        """Call the function; whatever JSON it gives, or the fault as a frame."""
        try:
            value = self.function(*arguments)
            json.dumps(value)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its answer
            return {"error": describe(error, self._root, (self.file, self.line))}
        return {"value": value}


def invalid(value: object) -> str:
    """Say why a returned value is no score; empty when it is one."""
    expected = "expected a finite number or a dict of named finite numbers"
    if not isinstance(value, dict):
        return (
            ""
            if finite(value)
            else f"the reward returned {shown(value)} ({type(value).__name__}); {expected}"
        )
    if not value:
        return f"the reward returned an empty dict; {expected}"
    for key, part in value.items():
        if not isinstance(key, str) or not key:
            return f"the reward returned a dict with the key {shown(key)}; {expected}"
        if not finite(part):
            return f"the reward's part {key!r} is {shown(part)} ({type(part).__name__}); {expected}"
    return ""


def finite(value: object) -> bool:
    """Whether it is a real number (no bool) that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        number = float(value)
    except OverflowError:
        return False
    return number - number == 0


def shown(value: object) -> str:
    """A bounded repr, also of values whose repr fails."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may do anything
        text = f"<value whose repr raises {type(error).__name__}>"
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def describe(error: BaseException, root: str, place: tuple[str, int]) -> Frame:
    """An exception with the deepest line of the user's own files."""
    prefix = os.path.join(root, "")
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(prefix):
            place = (frame.filename[len(prefix) :], frame.lineno or 1)
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(prefix):
        place = (str(error.filename)[len(prefix) :], error.lineno or 1)
    if isinstance(error, SystemExit):
        message = f"the reward called sys.exit({shown(error.code)})"
    elif isinstance(error, Unusable):
        message = str(error)
    else:
        text = error.msg if isinstance(error, SyntaxError) else shown_text(error)
        message = f"the reward raised {type(error).__name__}: {text}"
    if isinstance(error, ModuleNotFoundError):
        message += " (name its package in the reward's `requirements`; repository files are found by import)"
    return {"message": message, "file": place[0], "line": place[1]}


def shown_text(error: BaseException) -> str:
    """A bounded message of an exception, also of one whose __str__ fails."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may do anything
        text = f"<message that raises {type(broken).__name__}>"
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def serve(channel: Channel, config: Frame) -> None:
    """Import, say so, then answer one frame per call until the parent closes the pipe."""
    root, entry = str(config["root"]), str(config["entry"])
    try:
        reward = Reward(root, entry, str(config["function"]))
    except BaseException as error:  # noqa: BLE001 - whatever the import raises is the user's
        sys.stdout.flush()
        channel.send({"error": describe(error, root, (entry, 1))})
        return
    channel.send({"ready": True, "file": reward.file, "line": reward.line})
    ask = reward.value if config.get("answers") == "value" else reward.score
    if config.get("watched"):
        ask = functools.partial(watching.Watch().asked, ask)
    while (frame := channel.receive()) is not None:
        for arguments in frame["calls"]:  # type: ignore[attr-defined]  # JSON from our own parent
            answer = ask(arguments)
            if "error" in answer:
                sys.stdout.flush()
            channel.send(answer)


def enclose(config: Frame, standing: set[str], verdicts: list[walls.Verdict]) -> None:
    """Raise every wall that is left, in the first process of the namespaces."""
    root, uid = str(config["root"]), int(config["uid"])  # type: ignore[call-overload]  # JSON from our own parent
    limits: dict[str, float] = config["limits"]  # type: ignore[assignment]
    owner = (uid, uid) if os.getuid() == 0 else (os.getuid(), os.getgid())
    if "namespaces" in standing:
        try:
            visible: list[str] = config["visible"]  # type: ignore[assignment]
            tmp = str(config["temporary"])
            walls.build_root(str(config["mount"]), [*visible, root], tmp, int(limits["file_bytes"]), owner)
            verdicts.append(["files", True, ""])
        except (OSError, KeyError) as error:
            verdicts.append(["files", False, str(error)])
    dropping = os.getuid() == 0
    verdicts.extend(walls.limit(limits, own_user=dropping or "namespaces" in standing))
    if dropping:
        verdicts.append(walls.drop(uid, os.__file__))
    else:
        verdicts.append(["unprivileged user", False, "only root can become another user"])
    walls.renounce()
    walls.die_with_parent()


def guard(child: int, requests: int, box: str) -> int:
    """Wait for `child`; when our parent is gone, however it went, end everything and clean up."""
    poll = select.poll()
    poll.register(requests, 0)  # nothing but the hang-up of the last writer
    step = None
    try:
        poll.register(os.pidfd_open(child), select.POLLIN)
    except OSError:
        step = 100  # milliseconds: an old kernel is asked again and again
    while not ended(child) and not hung_up(poll.poll(step), requests):
        pass
    orphaned = hung_up(poll.poll(0), requests)
    if orphaned and not graceful(child):
        os.kill(child, signal.SIGKILL)
    code = watch(child)
    if orphaned:
        discard(box)
    return code


def discard(box: str) -> None:
    """Delete the sandbox's folder; another process of the same pool may be doing so too."""
    for folder, _, _ in os.walk(box):
        with contextlib.suppress(FileNotFoundError):
            os.chmod(folder, 0o700)
    shutil.rmtree(box, ignore_errors=True)


def ended(child: int) -> bool:
    """Whether a child waits to be reaped."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def hung_up(events: list[tuple[int, int]], requests: int) -> bool:
    """Whether the last writer of the request pipe is gone."""
    return any(descriptor == requests for descriptor, _ in events)


def graceful(child: int) -> bool:
    """Whether an idle child has seen the closed pipe and ended by itself."""
    for _ in range(20):
        if ended(child):
            return True
        time.sleep(0.01)
    return False


def watch(child: int) -> int:
    """Reap whatever ends; return how `child` ended, signals as 128 + number."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main() -> None:
    """Start the three processes; see the module's docstring."""
    config: Frame = json.loads(sys.argv[3])
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    standing, verdicts = walls.separate(network=config["network"] == "full")
    first = os.fork()
    if first:
        channel.send({"pid": first})
        os.close(int(sys.argv[2]))
        os._exit(guard(first, int(sys.argv[1]), str(config["box"])))
    enclose(config, standing, verdicts)
    second = os.fork()
    if second:
        os.close(int(sys.argv[1]))
        os.close(int(sys.argv[2]))
        os._exit(watch(second))
    walls.die_with_parent()
    channel.send({"walls": verdicts})
    serve(channel, config)


if __name__ == "__main__":
    main()
