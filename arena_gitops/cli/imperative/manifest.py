"""`arena manifest`: check a training manifest by itself; no repository, no server."""

from __future__ import annotations

import json
from typing import Any

import click

from arena_gitops.cli import options
from arena_gitops.cli.imperative import manifests
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.report_error import diagnostic_document
from arena_gitops.cli.session import Session
from arena_gitops.errors import Diagnostic, RepoError


@click.group(no_args_is_help=True)
def manifest() -> None:
    """Check a training manifest by itself."""


@explained("arena manifest validate grpo.yaml", "cat grpo.yaml | arena manifest validate - --json")
@manifest.command()
@click.argument("file", metavar="FILE|-")
@click.option("--payload", is_flag=True, help="Print the manifest in full, all defaults filled in.")
@options.json
@click.pass_context
def validate(ctx: click.Context, *, file: str, payload: bool) -> None:
    """Check a manifest of any published dialect; every problem has its line and column.

    Exit code 0 when it is valid, 65 when it is not. --json prints one object with valid, algorithm, diagnostics
    (severity, code, message, hint, file, line, column) and, with --payload, manifest.
    """
    session = ctx.ensure_object(Session)
    try:
        found = manifests.read(file)
    except RepoError as error:
        if not session.json:
            raise
        session.emit(_document(valid=False, diagnostics=error.diagnostics))
        ctx.exit(error.exit_code)
    normal = found.manifest.normal()
    algorithm = found.manifest.algorithm.name
    if session.json:
        more = {"manifest": normal} if payload else {}
        session.emit(_document(valid=True, diagnostics=found.remarks, algorithm=algorithm, **more))
        return
    for remark in found.remarks:
        session.say(str(remark))
    click.echo(
        json.dumps(normal, indent=2, ensure_ascii=False) if payload else f"valid: {file} trains {algorithm}"
    )


@explained("arena manifest schema > manifest.schema.json")
@manifest.command()
@options.json
@click.pass_obj
def schema(session: Session) -> None:
    """Print the JSON Schema of manifests, older spellings included; it is JSON with or without --json."""
    from arena_gitops.spec.schema import rendered, schemas

    session.emit(rendered(schemas()["manifest"]).rstrip("\n"))


def _document(*, valid: bool, diagnostics: tuple[Diagnostic, ...], **more: Any) -> str:
    document = {
        "format_version": "1.0",
        "kind": "arena.manifest-validation",
        "valid": valid,
        "algorithm": None,
        "diagnostics": [diagnostic_document(one) for one in diagnostics],
    }
    return json.dumps(document | more, ensure_ascii=False)
