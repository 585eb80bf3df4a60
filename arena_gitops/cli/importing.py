"""`arena import`: the files of something that commands have made, so that a repository can take it over.

Prints or writes; changes nothing on the platform. The next plan shows the import, an apply carries it out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from arena_gitops.cli import options
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import PlatformError, UsageError
from arena_gitops.plan.dependants import used_by
from arena_gitops.platforms.base import Platform, unmanaged
from arena_gitops.repo.export import Export
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredState

MOST_BYTES = 256 << 20
"""Of one file that is written."""
SHOWN_BYTES = 4000
"""Of one file that is printed."""


@click.command("import")
@click.argument("address", required=False, metavar="KIND/NAME")
@click.argument("id_", required=False, metavar="ID")
@click.option("--list", "list_", is_flag=True, help="Only list what no repository manages.")
@click.option(
    "--write",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the files: the resource's here, others where they belong.",
)
@options.target
@options.json
@click.pass_obj
def import_(
    session: Session,
    *,
    address: str | None,
    id_: str | None,
    list_: bool,
    file: Path | None,
    target: str | None,
) -> None:
    """Write what commands have made as files to commit.

    With the block `imports:` that takes it over: the next plan shows that, an apply carries it out. ID is what the platform calls it; on our own server that is its name. Without --write the files are printed.
    An experiment brings along its dataset, project and reward, unless the repository declares them already.
    """
    if list_ == bool(address):
        raise UsageError("say either KIND/NAME ID, or --list")
    repository = Repository.read("main")
    choice = repository.choose(target)
    platform = session.using(connect(choice, os.environ, say=session.say, run_named=False))
    there = unmanaged(platform)
    if address is None:
        _list(session, there)
        return
    wanted = _wanted(address, id_, there)
    export = Export(lambda digest: _bytes(platform, digest))
    place = _place(repository.root, file) if file is not None else None
    export.add(there[wanted], place)
    _companions(export, there[wanted], there, repository.desired)
    if file is not None:
        _write(repository.root, export.files)
    _tell(session, export, written=file is not None)


def _wanted(address: str, id_: str | None, there: Mapping[Address, ResourceDocument]) -> Address:
    try:
        wanted = Address.parse(address)
    except ValueError as error:
        raise UsageError(str(error)) from error
    called = id_ or wanted.name
    if called != wanted.name:
        raise UsageError(
            f"on this platform the id of a resource is its name: import {wanted.kind}/{called} as {called}"
        )
    if wanted not in there:
        known = [str(other) for other in there]
        hint = suggestion(address, known) if known else "there is nothing unmanaged"
        raise UsageError(f"there is no unmanaged {address} here; {hint}")
    return wanted


def _companions(
    export: Export,
    document: ResourceDocument,
    there: Mapping[Address, ResourceDocument],
    desired: DesiredState,
) -> None:
    """What it builds on and the repository does not declare."""
    for parent in sorted(used_by(document)):
        if parent in desired.resources or parent in export.imported:
            continue
        if parent in there:
            export.add(there[parent])
            _companions(export, there[parent], there, desired)
        elif parent.kind == "reward":
            inputs: Mapping[str, object] = document.spec["inputs"]["reward"]  # type: ignore[index,call-overload,assignment]  # JSON of a known shape
            export.add_reward(parent.name, inputs)


def _bytes(platform: Platform, digest: str) -> bytes:
    found = platform.read_blob(digest, limit=MOST_BYTES)
    if found is None:
        raise PlatformError(
            f"{digest} cannot be read: it is gone, larger than {MOST_BYTES >> 20} MiB, or not yours"
        )
    return found


def _place(root: Path, file: Path) -> str:
    absolute = Path.cwd() / file
    try:
        return absolute.resolve().relative_to(root.resolve()).as_posix()
    except ValueError as error:
        raise UsageError(f"--write {file}: expected a file of this repository ({root})") from error


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    """All or nothing; a file that has this content already is left alone."""
    taken = [
        path for path, data in files.items() if (root / path).exists() and (root / path).read_bytes() != data
    ]
    if taken:
        raise UsageError(f"nothing was written, because these exist with other content: {', '.join(taken)}")
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def _tell(session: Session, export: Export, *, written: bool) -> None:
    if session.json:
        shown = {path: _text(data) for path, data in export.files.items()}
        imported = [str(address) for address in export.imported]
        document = {"format_version": "1.0", "kind": "arena.import", "imports": imported, "files": shown}
        session.emit(json.dumps(document, ensure_ascii=False))
        return
    for path, data in export.files.items():
        click.echo(f"wrote {path}" if written else f"# {path}")
        if not written:
            click.echo(_text(data))
    if written:
        session.say("next: arena plan; nothing was changed on the platform")


def _text(data: bytes) -> str:
    shown = data[:SHOWN_BYTES].decode(errors="replace")
    return shown if len(data) <= SHOWN_BYTES else f"{shown}… ({len(data):,} bytes in all)"


def _list(session: Session, there: Mapping[Address, ResourceDocument]) -> None:
    if session.json:
        found = [
            {"address": str(a), "id": a.name, "run": d.run.state.value if d.run else None}
            for a, d in sorted(there.items())
        ]
        session.emit(json.dumps({"format_version": "1.0", "kind": "arena.unmanaged", "resources": found}))
        return
    if not there:
        click.echo("Nothing here is unmanaged.")
    width = max((len(str(address)) for address in there), default=0)
    for address, document in sorted(there.items()):
        run = f"  run {document.run.run_id} {document.run.state.value}" if document.run else ""
        click.echo(f"{address!s:<{width}}  id {address.name}{run}".rstrip())
