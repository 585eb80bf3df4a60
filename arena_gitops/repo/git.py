"""What git knows of the working tree: which files belong to it, what has changed, where it came from.

The only importer of git. Everything a plan needs is four short `git` processes; GitPython reads the trees of
other commits. No hook, no file-system monitor and no write: the index is left as it is, optional locks are
off. Clean filters are the user's own configuration and do run, because the bytes git would store are the ones
that count.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from arena_gitops.errors import Diagnostic, RepoError
from arena_gitops.repo.conversion import ATTRIBUTES, Scan, converts

ROOT_FILE = "arena.yaml"

_QUIET = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_OTHER_REPOSITORY = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"}
"""Variables git sets inside hooks; the repository meant here is the one around the folder."""

_SYMLINK = 0o120000
_OTHER = "another repository"
"""In place of the blob id of a submodule."""
_UNSAFE = frozenset({"..", ".git", "/"})
"""Parts of a path that git itself refuses to check out."""

_CONVERTERS = ("filter", "ident", "working-tree-encoding")
"""Attributes that make the stored bytes differ from those on disk (line endings aside)."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working tree at one moment. Paths are POSIX, relative to `root`."""

    root: Path
    files: Mapping[str, str]
    """every file that is tracked, or neither tracked nor ignored → blob id in the index, empty if untracked"""
    changed: frozenset[str]
    """paths that are not as in HEAD, deleted ones too"""
    commit: str | None
    """None before the first commit"""
    remote: str | None
    """where it was cloned from, without credentials"""
    submodules: tuple[str, ...] = ()
    """folders that are other repositories; their files are not among these"""

    def stored_bytes(self, path: str) -> bytes:
        """The bytes git has, or would store, for a file: line endings and clean filters applied."""
        if path not in self.changed and self.files.get(path):
            return _git(self.root, "cat-file", "blob", self.files[path])
        with tempfile.TemporaryDirectory(prefix="arena-git-") as objects:
            # a private object folder: the repository itself is not written to
            place = {"GIT_OBJECT_DIRECTORY": objects}
            oid = _git(self.root, "hash-object", "-w", f"--path={path}", "--", path, env=place)
            return _git(self.root, "cat-file", "blob", oid.decode().strip(), env=place)

    def converts(self, path: str, found: Scan) -> bool:
        """Whether git stores other bytes than those on disk; found without reading the file again.

        A filter of the user's own configuration may do anything: such a file is taken for converted.
        """
        out = _git(self.root, "check-attr", "-z", *ATTRIBUTES, "--", path)
        fields = out.decode(errors="surrogateescape").split("\0")
        attributes = dict(zip(fields[1::3], fields[2::3], strict=False))
        driver = attributes.get("filter", "unset")
        return self._filters(driver) or converts(found, attributes, self._setting("core.autocrlf"))

    def _filters(self, driver: str) -> bool:
        return any(self._setting(f"filter.{driver}.{how}") for how in ("clean", "process"))

    def _setting(self, name: str) -> str:
        return _git(self.root, "config", "--get", name, allow=(0, 1)).decode(errors="replace").strip()

    def converters(self, paths: Iterable[str]) -> dict[str, str]:
        """Which of these paths have a converting attribute → as `filter=lfs`."""
        wanted = "".join(f"{path}\0" for path in paths)
        if not wanted:
            return {}
        out = _git(
            self.root,
            "check-attr",
            "-z",
            "--stdin",
            *_CONVERTERS,
            stdin=wanted.encode(errors="surrogateescape"),
        )
        fields = out.decode(errors="surrogateescape").split("\0")
        triples = zip(fields[0::3], fields[1::3], fields[2::3], strict=False)
        return {
            path: f"{name}={value}" for path, name, value in triples if value not in {"unspecified", "unset"}
        }


@dataclass(frozen=True, slots=True)
class Snapshot(Checkout):
    """The tree of a commit, written out into a folder: what is on disk are the stored bytes themselves."""

    def stored_bytes(self, path: str) -> bytes:
        """The bytes of a file."""
        return (self.root / path).read_bytes()

    def converts(self, path: str, found: Scan) -> bool:
        """Nothing is converted any more."""
        return False

    def converters(self, paths: Iterable[str]) -> dict[str, str]:
        """None: nothing is converted any more."""
        return {}


def find_root(cwd: Path) -> Path:
    """The nearest folder, `cwd` or above it, that holds `arena.yaml`."""
    here = cwd.resolve()
    for folder in (here, *here.parents):
        if (folder / ROOT_FILE).is_file():
            return folder
    hint = "Run inside an infra repository, or start one with an arena.yaml that says `name: my-stack`."
    raise RepoError(
        [Diagnostic(f"no {ROOT_FILE} in {here} or any folder above it", "no-arena-yaml", hint=hint)]
    )


def start(folder: Path) -> None:
    """Make a folder a git repository, unless it is in one already."""
    here = folder.resolve()
    if not any((above / ".git").exists() for above in (here, *here.parents)):
        _git(here, "init", "--quiet", "--initial-branch", "main")


def checkout(root: Path) -> Checkout:
    """Survey the working tree around `root`."""
    root = root.resolve()
    prefix = _git(root, "rev-parse", "--show-prefix").decode(errors="surrogateescape").strip("\n")
    tracked = dict(_tracked(root))
    submodules = tuple(path for path, oid in tracked.items() if oid == _OTHER)
    files = {path: oid for path, oid in tracked.items() if oid != _OTHER}
    commit: str | None = None
    changed: set[str] = set()
    for path, untracked in _status(root):
        if path.startswith("# branch.oid "):
            commit = path.removeprefix("# branch.oid ")
            continue
        relative = path.removeprefix(prefix)
        changed.add(relative)
        if untracked:
            files[relative] = ""
    known = None if commit == "(initial)" else commit
    return Checkout(root, files, frozenset(changed), known, _remote(root), submodules)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is not as committed, and where the rest came from."""

    paths: tuple[str, ...]
    commit: str | None
    remote: str | None


def index(root: Path) -> Iterator[tuple[str, str, bytes]]:
    """Every tracked file below `root`: git's tag (`H`: an ordinary one), its mode, and mode, blob id and path."""
    for record in _git(root, "ls-files", "-z", "--stage", "-v").split(b"\0"):
        if record:
            yield record[:1].decode(), record[2:8].decode(), record[2:]


def latest(root: Path, most: int) -> list[str]:
    """The commits that led here, the newest first."""
    return _git(root, "rev-list", f"--max-count={most}", "HEAD").decode().split()


def survey_of_changes(root: Path) -> Changes:
    """The changed paths below `root`, sorted, with the commit and the remote."""
    prefix = _git(root, "rev-parse", "--show-prefix").decode(errors="surrogateescape").strip("\n")
    paths: list[str] = []
    commit = None
    for path, _ in _status(root):
        if path.startswith("# branch.oid "):
            commit = path.removeprefix("# branch.oid ")
        elif not path.startswith("# "):
            paths.append(path.removeprefix(prefix))
    return Changes(tuple(sorted(paths)), commit, _remote(root))


def tree_at(root: Path, ref: str) -> dict[str, bytes]:
    """Every file below `root` as commit `ref` has it; raises RepoError when there is no such commit."""
    _, blobs = _blobs_at(root, ref)
    return {path: blob.data_stream.read() for path, blob in blobs.items()}


def snapshot(root: Path, ref: str, folder: Path) -> Snapshot:
    """Write every file below `root`, as commit `ref` has it, into an empty folder; raises as `tree_at` does.

    Nothing is checked out: no hook and no filter runs, the index and the working tree stay as they are.
    """
    commit, blobs = _blobs_at(root, ref)
    folder = folder.resolve()
    links: dict[Path, str] = {}
    for path, blob in blobs.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if blob.mode == _SYMLINK:
            links[place] = blob.data_stream.read().decode(errors="surrogateescape")
            continue
        with place.open("wb") as file:
            blob.stream_data(file)
    for place, target in links.items():  # last, so that nothing is written through one; reading checks them
        place.symlink_to(target)
    files = {path: str(blob.hexsha) for path, blob in blobs.items()}
    return Snapshot(folder, files, frozenset(), commit, _remote(root))


def _blobs_at(root: Path, ref: str) -> tuple[str, dict[str, Any]]:
    """The id of a commit, and path below `root` → git object."""
    import git  # 100 ms, and only a comparison with another commit needs it

    repo = git.Repo(root, search_parent_directories=True)
    prefix = root.resolve().relative_to(Path(repo.working_dir).resolve()).as_posix()
    try:
        commit = repo.commit(ref)
        below = commit.tree if prefix == "." else commit.tree / prefix
    except (git.BadName, git.exc.GitError, KeyError, ValueError) as error:
        raise RepoError([_no_commit(root, ref)]) from error
    start = 0 if prefix == "." else len(prefix) + 1
    blobs = {str(blob.path)[start:]: blob for blob in below.traverse() if blob.type == "blob"}
    if unsafe := [path for path in blobs if not _UNSAFE.isdisjoint(Path(path).parts)]:
        message = f"commit {ref!r} holds a path that no checkout would write: {unsafe[0]!r}"
        raise RepoError([Diagnostic(message, "unsafe-path")])
    return commit.hexsha, blobs


def _no_commit(root: Path, ref: str) -> Diagnostic:
    shallow = _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true"
    if shallow:
        message = f"commit {ref!r} is not here: this clone is shallow, its history is cut off"
        hint = (
            "In GitHub Actions set `fetch-depth: 0` for actions/checkout; elsewhere: git fetch --unshallow."
        )
        return Diagnostic(message, "shallow-clone", hint=hint)
    hint = (
        "Fetch it first (in GitHub Actions: `fetch-depth: 0` for actions/checkout), or name another commit."
    )
    return Diagnostic(f"no commit {ref!r} that holds this folder", "no-such-commit", hint=hint)


def file_at(root: Path, ref: str, name: str) -> bytes | None:
    """One file of the folder `root` as commit `ref` has it; None where it had none.

    Raises:
        RepoError: there is no such commit here.
    """
    if ref.startswith("-") or not _git(
        root, "rev-parse", "-q", "--verify", f"{ref}^{{commit}}", allow=(0, 1)
    ):
        raise RepoError([_no_commit(root, ref)])
    prefix = _git(root, "rev-parse", "--show-prefix").decode(errors="surrogateescape").strip("\n")
    found = f"{ref}:{prefix}{name}"
    there = _git(root, "ls-tree", "-z", ref, "--", name)
    return _git(root, "cat-file", "blob", found) if there else None


def without_credentials(url: str) -> str:
    """A remote's address without user, password, query and fragment."""
    parts = urlsplit(url)
    if not parts.scheme or not parts.netloc:
        return url  # a path, or git@host:path
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _tracked(root: Path) -> Iterator[tuple[str, str]]:
    for entry in _records(_git(root, "ls-files", "-z", "--stage")):
        head, _, path = entry.partition("\t")
        mode, oid, _stage = head.split(" ")
        yield path, _OTHER if mode == "160000" else oid


def _status(root: Path) -> Iterator[tuple[str, bool]]:
    """Changed paths from the repository's top, and whether each is untracked; headers as they are."""
    flags = ("--porcelain=v2", "--branch", "--no-ahead-behind", "--no-renames", "--untracked-files=all", "-z")
    for entry in _records(_git(root, "status", *flags, "--", ".")):
        if entry.startswith("#"):
            yield entry, False
        elif entry.startswith("?"):
            yield entry[2:], True
        else:  # `1` has 8 fields before the path, `u` (unmerged) has 10
            yield entry.split(" ", 10 if entry.startswith("u") else 8)[-1], False


def _remote(root: Path) -> str | None:
    lines = _git(root, "config", "--get-regexp", r"^remote\..*\.url$", allow=(0, 1)).decode().splitlines()
    urls = dict(line.split(" ", 1) for line in lines if " " in line)
    found = urls.get("remote.origin.url") or next(iter(urls.values()), None)
    return without_credentials(found) if found else None


def _records(out: bytes) -> list[str]:
    return [entry for entry in out.decode(errors="surrogateescape").split("\0") if entry]


def _git(
    root: Path,
    *args: str,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    allow: tuple[int, ...] = (0,),
) -> bytes:
    own = {key: value for key, value in os.environ.items() if key not in _OTHER_REPOSITORY}
    own |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(env or {})}
    try:
        done = subprocess.run(
            ["git", *_QUIET, "-C", str(root), *args], input=stdin, capture_output=True, env=own, check=False
        )
    except FileNotFoundError as error:
        raise RepoError(
            [Diagnostic("git is not installed", "no-git", hint="Install git and try again.")]
        ) from error
    if done.returncode not in allow:
        raise RepoError([_failure(root, args[0], done.stderr.decode(errors="replace").strip())])
    return done.stdout


def _failure(root: Path, command: str, stderr: str) -> Diagnostic:
    if "dubious ownership" in stderr:
        hint = f"If you trust it: git config --global --add safe.directory {root}"
        return Diagnostic(
            f"git does not trust {root}: another user owns it", "git-unsafe-directory", hint=hint
        )
    if "not a git repository" in stderr:
        hint = f"Make it one: git init {root} (what is planned is what git knows)."
        return Diagnostic(f"{root} is not in a git repository", "not-a-git-repository", hint=hint)
    return Diagnostic(f"git {command} failed: {stderr}", "git-failed")
