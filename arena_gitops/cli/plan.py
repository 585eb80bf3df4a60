"""`arena plan`: show what an apply would do. Changes nothing, and runs nothing of the repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from pydantic import ValidationError

from arena_gitops import app
from arena_gitops.apply.inspection import Inspection
from arena_gitops.cli import glance, options
from arena_gitops.cli.session import Session, columns
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import LOCAL, connect
from arena_gitops.errors import UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.base import Platform
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.platforms.local import Home
from arena_gitops.repo.load import load_at
from arena_gitops.report import json as report_json
from arena_gitops.report import markdown as report_markdown
from arena_gitops.report import text as report_text
from arena_gitops.report.diffs import comparison


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]...")
@options.target
@options.namespace
@options.allow
@options.scope
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="How the plan is printed.",
)
@options.json
@click.option(
    "-o",
    "--out",
    "--json-into",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plan here too, as JSON.",
)
@click.option("--offline", is_flag=True, help="Ask no platform; compare with --against.")
@click.option("--against", metavar="git:REF", help="With --offline: the commit to compare with.")
@click.option(
    "--checks",
    "checks_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show the scores that `arena check --run -o FILE` has recorded.",
)
@click.option(
    "--diff",
    "earlier",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Say first what is no longer as in this plan file.",
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 when there are changes.")
@click.option("--expect-no-changes", is_flag=True, help="Exit with 8 when there are changes.")
@click.option(
    "--require-settled", is_flag=True, help="Exit with 3 while something waits for a person's choice."
)
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    paths: tuple[Path, ...],
    target: str | None,
    namespace: str,
    allow: frozenset[str],
    scope: Scope,
    form: str,
    out: Path | None,
    offline: bool,
    against: str | None,
    checks_file: Path | None,
    earlier: Path | None,
    detailed_exitcode: bool,
    expect_no_changes: bool,
    require_settled: bool,
) -> None:
    """Show what an apply would change, cost and start.

    With files or folders: only of what is declared there, as with --select.

    Exit codes: 0 planned, 2 changes present (with --detailed-exitcode), 3 blocked, 65 invalid repository.
    """
    session = ctx.ensure_object(Session)
    session.json = session.json or form == "json"
    repository = Repository.read(namespace)
    scope = repository.resolved(scope, paths)
    checks = read_checks(checks_file)
    if offline or against is not None:
        planned = _offline(repository, target, _ref(against, offline=offline), scope, checks)
    else:
        choice = repository.choose(target)
        platform = session.using(
            connect(choice, os.environ, say=session.say, run_named=False, book=repository.desired.resources)
        )
        planned, observed = app.compare(
            platform, repository.desired, target=choice.name, allow=allow, scope=scope, checks=checks
        )
        if out is None and checks is None:
            _keep(session, planned, platform, observed.etag, "json" if session.json else form)
    if out is not None:
        write_atomically(out, planned.to_json())
    if earlier is not None:
        _compare(session, read_plan(earlier), planned)
    show(session, planned, "json" if session.json else form)
    if expect_no_changes:
        app.require_no_changes(planned)
    if require_settled:
        app.require_settled(planned)
    ctx.exit(app.exit_code(planned, detailed=detailed_exitcode))


def _ref(against: str | None, *, offline: bool) -> str:
    """The commit an offline plan is compared with."""
    scheme, _, ref = (against or "").partition(":")
    if not offline or scheme != "git" or not ref or ref.startswith("-"):
        raise UsageError("expected both: --offline --against git:REF (for example git:origin/main)")
    return ref


PLAN_BYTES = 256 << 20


def read_plan(path: Path) -> Plan:
    """A plan file; raises UsageError where it is none, or none of this version."""
    try:
        if path.stat().st_size > PLAN_BYTES:
            raise UsageError(f"{path} is larger than any plan")
        return Plan.from_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(f"{path} is no plan of this version (arena plan -o writes one)") from error


def _compare(session: Session, before: Plan, now: Plan) -> None:
    """Beside the plan, never instead of it: with --json on stderr, where everything else goes."""
    for line in comparison(before, now):
        click.echo(line, err=session.json)
    click.echo("", err=session.json)


CHECKS_BYTES = 16 << 20


def read_checks(path: Path | None) -> Inspection | None:
    """Recorded results of `arena check`; raises UsageError where the file is something else."""
    if path is None:
        return None
    try:
        if path.stat().st_size > CHECKS_BYTES:
            raise UsageError(f"{path} is larger than what arena check writes")
        return Inspection.model_validate_json(path.read_bytes())
    except (ValidationError, OSError) as error:
        raise UsageError(f"{path} is not what `arena check --run -o FILE` writes") from error


def _offline(
    repository: Repository, target: str | None, ref: str, scope: Scope, checks: Inspection | None
) -> Plan:
    desired = repository.desired
    base = load_at(repository.root, ref, namespace=desired.owner.namespace)
    name = target or desired.default_target or LOCAL
    return app.plan_offline(desired, base, target=name, against=f"git:{ref}", scope=scope, checks=checks)


def _keep(session: Session, planned: Plan, platform: Platform, etag: str, form: str) -> None:
    """Keep an answer that there is nothing to do, for the same question while nothing moves."""
    settled = planned.applyable and not planned.has_changes
    if session.question is None or not settled or not isinstance(platform, HttpPlatform):
        return
    local = Home.of(os.environ)
    note = local.server_file()
    embedded = note is not None and note.url == platform.url
    where = glance.Where(
        url=platform.url,
        stack=planned.stack,
        namespace=planned.namespace,
        etag=etag,
        local=str(local.path / "server.json") if embedded else None,
    )
    glance.remember(session.question, where, rendered(planned, form), os.environ)


def show(session: Session, planned: Plan, form: str) -> None:
    """Print a plan on stdout."""
    click.echo(rendered(planned, form), nl=False)
    session.printed = session.printed or form == "json"


def rendered(planned: Plan, form: str) -> str:
    """A plan as it is printed."""
    match form:
        case "json":
            return report_json.render(planned).rstrip("\n") + "\n"
        case "markdown":
            return report_markdown.render(planned)
        case _:
            return report_text.render(planned, colour=coloured(), width=columns())


def coloured() -> bool:
    """Colour on a terminal, unless NO_COLOR says otherwise (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def write_atomically(path: Path, data: bytes) -> None:
    """Whole or not at all: a half-written plan must never be applied. Raises UsageError where it cannot be."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
