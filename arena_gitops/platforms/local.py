"""The embedded server: find it, start it when there is none, stop it. One per user, in `$ARENA_HOME`.

`server.json` says where it is; it is believed only when that very process runs and answers. A lock file
makes two commands that start at once agree on one server. The server outlives the command that started it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from arena_gitops import __version__
from arena_gitops.errors import ArenaError, PlatformUnreachableError
from arena_gitops.platforms import process
from arena_gitops.platforms.door import Door
from arena_gitops.platforms.http import HttpPlatform

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
LOCK_TIMEOUT_S = START_TIMEOUT_S + STOP_TIMEOUT_S
LOG_TAIL_LINES = 20
PIP_LINE = 'pip install "arena-runner[train]"'

Say = Callable[[str], None]


class ServerFile(BaseModel):
    """`server.json`, written by the server when it is ready."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: int
    started: float
    port: int
    token: str
    version: str

    @property
    def url(self) -> str:
        """Loopback only."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of the embedded server."""

    path: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Home:
        """`$ARENA_HOME`, by default `~/.local/share/arena-gitops`."""
        chosen = environ.get("ARENA_HOME")
        return cls(Path(chosen).expanduser() if chosen else Path.home() / ".local" / "share" / "arena-gitops")

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.path / "logs" / "server.log"

    def exists(self) -> bool:
        """Whether a server has ever been started here."""
        return self.path.is_dir()

    def server_file(self) -> ServerFile | None:
        """The note of a server, alive or not; None when there is none or it cannot be read."""
        try:
            return ServerFile.model_validate_json((self.path / "server.json").read_bytes())
        except (FileNotFoundError, ValidationError):  # half written or of a stranger: as good as none
            return None

    def running(self) -> ServerFile | None:
        """The note of a server whose process is alive, whether it answers or not."""
        noted = self.server_file()
        return noted if noted and process.is_same(noted.pid, noted.started) else None


def answers(server: ServerFile) -> bool:
    """Whether the server's own `/healthz` says yes, now."""
    platform = HttpPlatform(server.url, door=Door(server.url, server.token, attempts=1))
    try:
        return platform.healthy()
    except ArenaError:  # nobody, or somebody else who has taken the port
        return False
    finally:
        platform.close()


def find_runner(
    configured: str | None = None, *, beside: Path | None = None, search_path: str | None = None
) -> Path:
    """`arena-runner` beside this interpreter, else on PATH, else as the target names it."""
    sibling = (beside or Path(sys.executable).parent) / "arena-runner"
    if os.access(sibling, os.X_OK):
        return sibling
    if on_path := shutil.which("arena-runner", path=search_path):
        return Path(on_path)
    if configured:
        named = Path(configured).expanduser()
        if named.is_absolute() and named.is_file() and os.access(named, os.X_OK):
            return named
        raise ArenaError(f"targets.local.runner: {configured} is no executable file; give an absolute path")
    raise ArenaError(f"the local target needs the runner, which is not installed here: {PIP_LINE}")


def open_local(
    home: Home, *, find: Callable[[], Path] = find_runner, say: Say = lambda _: None
) -> HttpPlatform:
    """The embedded server, started if need be; a server of another version is replaced first."""
    server = _usable(home)
    if server is None:
        executable = find()
        home.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _start_lock(home, say):
            server = _usable(home)  # another command may have started it while we waited
            if server is None:
                _clear_the_way(home, say)
                server = _start(home, executable, say)
    return HttpPlatform(server.url, server.token)


def stop_local(home: Home) -> bool:
    """Stop the server gracefully; False when none runs."""
    server = home.running()
    if server is None:
        return False
    if not process.terminate(server.pid, server.started, timeout_s=STOP_TIMEOUT_S):
        raise PlatformUnreachableError(
            f"the server (pid {server.pid}) did not stop within {STOP_TIMEOUT_S:.0f} s; see {home.log}"
        )
    return True


def _usable(home: Home) -> ServerFile | None:
    server = home.running()
    return server if server and server.version == __version__ and answers(server) else None


def _clear_the_way(home: Home, say: Say) -> None:
    """A live server that is of no use is of another version, still starting, about to stop, or stuck."""
    server = home.running()
    if server is None:
        return
    if server.version != __version__:
        say(f"stopping the local server of version {server.version} (this is {__version__})")
    elif _becomes(lambda: answers(server) or home.running() is None, timeout_s=STOP_TIMEOUT_S):
        return
    else:
        say(f"the local server (pid {server.pid}) is alive but does not answer; restarting it")
    stop_local(home)


def _start(home: Home, executable: Path, say: Say) -> ServerFile:
    if server := _usable(home):
        return server
    say(f"starting the local server in {home.path}")
    home.log.parent.mkdir(exist_ok=True)
    with home.log.open("ab") as log:
        offset = log.tell()
        child = subprocess.Popen(
            [executable, "server", "--home", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.path,
            start_new_session=True,  # ctrl-C and a closed terminal end the command, not the server
        )
    _OUTLIVING.append(child)
    found: list[ServerFile] = []

    def ready() -> bool:
        server = _usable(home)
        found.extend([server] if server else [])
        return bool(server) or child.poll() is not None

    in_time = _becomes(ready, timeout_s=START_TIMEOUT_S)
    if found:
        say(f"local server ready on {found[0].url}")
        return found[0]
    if in_time:
        why = f"ended with exit code {child.returncode} before it was ready"
    else:
        child.terminate()  # ours and useless; a second try must not find it in the way
        why = f"was not ready within {START_TIMEOUT_S:.0f} s"
    raise PlatformUnreachableError(
        f"the local server {why}; the end of {home.log}:\n{_tail(home.log, offset)}"
    )


_OUTLIVING: list[subprocess.Popen[bytes]] = []
"""Servers we started: kept, because a collected `Popen` warns about a child that is meant to live on."""


@contextmanager
def _start_lock(home: Home, say: Say) -> Iterator[None]:
    with (home.path / "start.lock").open("wb") as file:

        def locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not locked():
            say("waiting for another command that is starting the local server")
            if not _becomes(locked, timeout_s=LOCK_TIMEOUT_S):
                raise PlatformUnreachableError(
                    f"another command has held {file.name} for {LOCK_TIMEOUT_S:.0f} s"
                )
        yield


def _becomes(condition: Callable[[], bool], *, timeout_s: float, pause_s: float = 0.1) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def _tail(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(offset)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-LOG_TAIL_LINES:]) or "    (nothing was printed)"
