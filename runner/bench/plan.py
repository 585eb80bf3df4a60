"""How long `arena plan` takes when nothing has changed: `python runner/bench/plan.py [COUNT…]`.

A made repository (`repo.py`) is planned by a process of its own against a server on loopback that answers with a
state in which everything is applied. *cold*: no cache. *warm*: the same again. CPU seconds of the process and
its children, and its largest resident memory; the first line is the median of several. `terraform plan` of as many
resources runs beside it (`terraforms.py` says where it comes from).
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import terraforms
from repo import write

COUNTS = (1_000, 10_000)
SMALL = 1_000
"""Up to here a cold plan is measured several times."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one process took."""

    cpu_s: float
    wall_s: float
    first_line_s: float
    peak_mib: float
    code: int
    out: str


def run(command: list[str], folder: Path, environment: dict[str, str], *, longest_s: float = 600.0) -> Taken:
    """Run a command and look at what it took; one that takes too long is killed."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    limit = threading.Timer(longest_s, process.kill)
    limit.start()
    first = process.stdout.readline()
    first_line = time.monotonic() - began
    rest = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    limit.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    text = (first + rest).decode(errors="replace")
    cpu, wall = usage.ru_utime + usage.ru_stime, time.monotonic() - began
    return Taken(cpu, wall, first_line, usage.ru_maxrss / 1024, process.returncode, text)


def applied_state(root: Path) -> bytes:
    """The answer of a server on which the whole repository has been applied and trained."""
    from arena_gitops.plan.offline import assumed
    from arena_gitops.repo.load import load
    from arena_gitops.spec.wire import StateDocument

    observed = assumed(load(root))
    document = StateDocument(
        platform="bench",
        version="bench",
        lineage="bench",
        etag="bench-1",
        resources=tuple(d.model_copy(update={"version": 1}) for d in observed.resources.values()),
        runs=tuple(observed.runs.values()),
        algorithms=("GRPO", "SFT"),
    )
    return document.model_dump_json().encode()


class Serving:
    """A server that knows one state, in a file: this process stays small, because a child's peak begins as ours."""

    def __init__(self, body: Path) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                known = self.headers.get("If-None-Match") == '"bench-1"'
                self.send_response(304 if known else 200)
                self.send_header("ETag", '"bench-1"')
                if not known:
                    self.send_header("Content-Length", str(body.stat().st_size))
                self.end_headers()
                if not known:
                    with body.open("rb") as file:
                        shutil.copyfileobj(file, self.wfile)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def environment(home: Path, url: str) -> dict[str, str]:
    """Of a person who has never used the command before."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ARENA_") and k != "CI"}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {
        **kept,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "ARENA_BASE_URL": url,
        "ARENA_API_KEY": "t",
    }


def require_no_changes(found: Taken) -> None:
    """Only a plan that found nothing to do is measured."""
    if found.code != 0 or "No changes" not in found.out:
        raise SystemExit(found.out[-2000:])


def measured(count: int, folder: Path, *, cold: int = 1, warm: int = 3) -> dict[str, Taken]:
    """The figures of one size, cold and warm: the least of several, and the median of their first lines."""
    root = write(folder / f"repo-{count}", count)
    state = folder / f"state-{count}.json"
    subprocess.run([sys.executable, __file__, "--state", root, state], check=True)
    serving = Serving(state)
    command = [sys.executable, "-m", "arena_gitops.cli", "plan"]
    taken: dict[str, Taken] = {}
    for name, repeats in (("cold", cold), ("warm", warm)):
        found = []
        for number in range(repeats):
            home = folder / (f"home-{count}-{number}" if name == "cold" else f"home-{count}-0")
            home.mkdir(exist_ok=True)
            found.append(run(command, root, environment(home, serving.url)))
            require_no_changes(found[-1])
        first_line = statistics.median(one.first_line_s for one in found)
        taken[name] = replace(min(found, key=lambda one: one.cpu_s), first_line_s=first_line)
    return taken


def measure(count: int, folder: Path) -> None:
    """Print the figures of one size."""
    for name, found in measured(count, folder, cold=2 if count > SMALL else 7, warm=7).items():
        print(
            f"arena plan  {count:>6} {name}  cpu {found.cpu_s:6.2f} s  wall {found.wall_s:6.2f} s  "
            f"first line {found.first_line_s * 1000:5.0f} ms  peak {found.peak_mib:4.0f} MiB"
        )


def measure_terraform(count: int, folder: Path) -> None:
    """The same number of `terraform_data`, all of them there, planned without changes."""
    terraform = terraforms.found()
    if isinstance(terraform, str):
        print(f"terraform   {count:>6} not measured: {terraform}")
        return
    program, name = terraform
    root = folder / f"terraform-{count}"
    terraforms.applied(program, root, count)
    command = terraforms.command_line(program, "plan", "input=false", "no-color")
    found = run(command, root, terraforms.environment(), longest_s=terraforms.LONGEST_S)
    if found.code == -signal.SIGKILL:
        print(f"terraform   {count:>6} not measured: still planning after {terraforms.LONGEST_S:.0f} s")
        return
    require_no_changes(found)
    print(
        f"terraform   {count:>6} plan  cpu {found.cpu_s:6.2f} s  wall {found.wall_s:6.2f} s  "
        f"first line {found.first_line_s * 1000:5.0f} ms  peak {found.peak_mib:4.0f} MiB  ({name})"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--state"]:
        Path(sys.argv[3]).write_bytes(applied_state(Path(sys.argv[2])))
        sys.exit()
    counts = [int(text) for text in sys.argv[1:]] or list(COUNTS)
    with tempfile.TemporaryDirectory(prefix="arena-bench-") as name:
        for wanted in counts:
            measure(wanted, Path(name))
            measure_terraform(wanted, Path(name))
