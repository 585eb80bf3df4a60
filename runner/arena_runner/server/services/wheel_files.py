"""Packages that a job's user code requires, as wheels, for the worker that does the job.

Who asks first starts the resolver and is told to come again; who asks later finds it at work, finds its wheels, or
hears its words. So nothing waits in a thread, and a server that was killed resolves again when it is asked again.
A list of requirements is resolved once for each kind of interpreter and kept while it is used: the segments of a run
get the same packages.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.worker import WheelFile, WheelListing, WheelTarget
from arena_runner.sandbox.packages import odd_one
from arena_runner.server.refusals import RefusedError, not_found

RESOLVE_S = 900.0
UNUSED_S = 30 * 24 * 3600.0
LISTING = "listing.json"
DRAFT = ".draft-"

NO_ANSWER = re.compile(r"Could not fetch URL (?!.*: (404|410) Client Error)")
"""In the resolver's log: an index that says "not here" has answered."""
NOT_TO_BE_HAD = re.compile(r"No matching distribution|ResolutionImpossible|conflicting dependencies")


@dataclass(slots=True)
class _Resolver:
    """A `pip download` at work."""

    process: subprocess.Popen[bytes]
    draft: Path
    until: float

    @property
    def said(self) -> str:
        """What it told people."""
        return self._read("said.txt")

    @property
    def log(self) -> str:
        """What it did."""
        return self._read("log.txt")

    def _read(self, name: str) -> str:
        path = self.draft / name
        return path.read_text("utf-8", "replace") if path.exists() else ""


@dataclass(slots=True)
class Resolvers:
    """Those of one server."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at_work: dict[str, _Resolver] = field(default_factory=dict)

    def close(self) -> None:
        """End them; whoever asked asks again when there is a server again."""
        with self.lock:
            for resolver in self.at_work.values():
                _end(resolver)
            self.at_work.clear()


def listing(
    root: Path, resolvers: Resolvers, requirements: tuple[str, ...], target: WheelTarget
) -> WheelListing:
    """What was resolved.

    Raises:
        RefusedError: 503 while it is being resolved, 422 when it cannot be, 424 when the index does not answer.
    """
    if (odd := odd_one(requirements)) is not None:
        message = f"the requirement {odd!r} is not taken: expected packages of an index by name"
        raise RefusedError(422, "bad-requirements", message)
    folder = root / _key(requirements, target)
    with resolvers.lock:
        if not (folder / LISTING).is_file():
            _advance(folder, resolvers, requirements, target)
    os.utime(folder)
    return WheelListing.model_validate_json((folder / LISTING).read_bytes())


def file(root: Path, requirements: tuple[str, ...], target: WheelTarget, path: str) -> tuple[Path, WheelFile]:
    """One wheel; 404 for whatever the listing does not name."""
    folder = root / _key(requirements, target)
    if (folder / LISTING).is_file():
        known = WheelListing.model_validate_json((folder / LISTING).read_bytes())
        for described in known.files:
            if described.path == path:
                return folder / path, described
    raise not_found(f"wheel {path!r}")


def _key(requirements: tuple[str, ...], target: WheelTarget) -> str:
    asked = [sorted(requirements), target.python, target.implementation, list(target.platform)]
    return sha256_json(asked).removeprefix("sha256:")[:32]


def _advance(folder: Path, resolvers: Resolvers, requirements: tuple[str, ...], target: WheelTarget) -> None:
    """Start the resolver, wait for it, or take over what it has found."""
    resolver = resolvers.at_work.get(folder.name)
    if resolver is None:
        _forget(folder.parent, {other.draft for other in resolvers.at_work.values()})
        resolvers.at_work[folder.name] = _begin(folder.parent, requirements, target)
        raise _come_again()
    code = resolver.process.poll()
    if code is None and time.monotonic() < resolver.until:
        raise _come_again()
    del resolvers.at_work[folder.name]
    try:
        if code != 0:
            raise _refusal(requirements, resolver, late=code is None)
        _keep(resolver.draft / "wheels", folder)
    finally:
        _end(resolver)


def _begin(root: Path, requirements: tuple[str, ...], target: WheelTarget) -> _Resolver:
    root.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=root, prefix=DRAFT))
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-input", "--disable-pip-version-check"]
    command += ["--no-color", "--progress-bar", "off", "--only-binary", ":all:"]
    command += ["--log", str(draft / "log.txt"), "--dest", str(draft / "wheels")]
    command += ["--python-version", target.python, "--implementation", target.implementation]
    for tag in target.platform:
        command += ["--platform", tag]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARENA_")}
    with (draft / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--", *requirements],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
        )
    return _Resolver(process, draft, time.monotonic() + RESOLVE_S)


def _keep(wheels: Path, folder: Path) -> None:
    """Name what was found and put it in its place, in one step."""
    files = []
    for path in sorted(wheels.iterdir()):
        with path.open("rb") as opened:
            digest = "sha256:" + hashlib.file_digest(opened, "sha256").hexdigest()
        files.append(WheelFile(path=path.name, size=path.stat().st_size, digest=digest))
    total = sha256_json({file.path: file.digest for file in files})
    (wheels / LISTING).write_text(WheelListing(digest=total, files=tuple(files)).model_dump_json())
    wheels.rename(folder)


def _come_again() -> RefusedError:
    return RefusedError(503, "resolving", "the requirements are being resolved; ask again")


def _refusal(requirements: tuple[str, ...], resolver: _Resolver, *, late: bool) -> RefusedError:
    """Whose fault it is, in the resolver's words."""
    said, names = resolver.said, ", ".join(requirements)
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    words = " ".join(errors[-3:]) or " ".join(said.strip().splitlines()[-3:])
    if late:
        words = f"it took longer than {RESOLVE_S:g} s"
    elif NOT_TO_BE_HAD.search(said) and not NO_ANSWER.search(resolver.log):
        message = f"the requirements ({names}) cannot be had as wheels: {words}"
        return RefusedError(422, "bad-requirements", message)
    message = f"the package index did not give the requirements ({names}): {words}"
    return RefusedError(424, "no-index", message)


def _end(resolver: _Resolver) -> None:
    if resolver.process.poll() is None:
        resolver.process.kill()
        resolver.process.wait()
    shutil.rmtree(resolver.draft, ignore_errors=True)


def _forget(root: Path, used: set[Path]) -> None:
    """Remove what nobody has asked for in a month, and what a server that was killed had begun."""
    for folder in root.glob("*"):
        begun = folder.name.startswith(DRAFT) and folder not in used
        if begun or time.time() - folder.stat().st_mtime > UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)
