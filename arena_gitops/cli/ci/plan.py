"""`arena ci plan`: plan, and show it in the job's page, beside the code and in the pull request."""

from __future__ import annotations

import os
from pathlib import Path

import click

from arena_gitops import app
from arena_gitops.cli import options
from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.finding import Finding, problem
from arena_gitops.cli.ci.sticky import write
from arena_gitops.cli.plan import write_atomically
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import AuthError, RepoError, UsageError
from arena_gitops.repo.git import find_root
from arena_gitops.repo.load import limits_at, load_at
from arena_gitops.report import text as report_text


@click.command()
@options.target
@options.namespace
@options.allow
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what was found here too, for `arena ci comment --from`.",
)
@click.option(
    "--base",
    metavar="REF",
    help="What a pull request is compared with where the server gives no access. Default: the commit it is to join.",
)
@click.option("--no-comment", is_flag=True, help="Leave the pull request alone.")
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    target: str | None,
    namespace: str,
    allow: frozenset[str],
    out: Path | None,
    base: str | None,
    no_comment: bool,
) -> None:
    """Plan, and show it in the pull request.

    Sets the outputs plan_id, applyable and changes. A pull request from a fork, which has no access to the
    server, is compared with the commit it is to join. Exit codes: 0 planned, 3 blocked, 65 invalid repository.
    """
    session = ctx.ensure_object(Session)
    actions = session.using(Actions.read(os.environ))
    root = find_root(Path.cwd())
    if base is not None and base.startswith("-"):
        raise UsageError(f"--base {base}: expected a commit, for example origin/main")
    finding = _find(session, actions, root, target=target, namespace=namespace, allow=allow, base=base)
    if out is not None:
        write_atomically(out, finding.model_dump_json(by_alias=True).encode() + b"\n")
    _tell(actions, finding)
    pull = actions.pull
    if pull is not None and not pull.fork and actions.token and not no_comment:
        write(session, actions, pull.number, finding.place, finding.comment())
    if finding.problems:
        ctx.exit(RepoError.exit_code)
    ctx.exit(app.exit_code(finding.plan, detailed=False) if finding.plan else 0)


def prefix(root: Path) -> str:
    """Of the stack within its git repository: empty for the top."""
    for folder in (root, *root.parents):
        if (folder / ".git").exists():
            found = root.relative_to(folder).as_posix()
            return "" if found == "." else found
    return ""


def place_of(actions: Actions, root: Path, target: str) -> Finding:
    """An empty finding: where we are."""
    pull = actions.pull
    return Finding(
        target=target,
        root=prefix(root),
        head=pull.head if pull else actions.sha,
        base=pull.base if pull else "",
        run_url=actions.run_url,
    )


def _find(
    session: Session,
    actions: Actions,
    root: Path,
    *,
    target: str | None,
    namespace: str,
    allow: frozenset[str],
    base: str | None,
) -> Finding:
    named = target or os.environ.get("ARENA_BASE_URL") or "default"
    try:
        joined = base or actions.base
        limits = limits_at(root, joined) if joined else None
        repository = Repository.read(namespace, limits)
    except RepoError as error:
        problems = tuple(problem(diagnostic) for diagnostic in error.diagnostics)
        return place_of(actions, root, named).model_copy(update={"problems": problems})
    choice = repository.choose(target)
    found = place_of(actions, root, choice.name)
    try:
        platform = session.using(
            connect(choice, os.environ, say=session.say, run_named=False, book=repository.desired.resources)
        )
        made = app.plan(app.World(platform), repository.desired, target=choice.name, allow=allow)
    except AuthError:
        pull = actions.pull
        if pull is None or not pull.fork:
            raise  # a fork's job has no key, and gets a plan all the same: against the commit it is to join
        before = load_at(root, base or pull.base, namespace=namespace)
        against = f"git:{base or pull.base[:12]}"
        made = app.plan_offline(repository.desired, before, target=choice.name, against=against)
    return found.model_copy(update={"plan": made})


def _tell(actions: Actions, finding: Finding) -> None:
    made = finding.plan
    if made is not None:
        click.echo(report_text.render(made), nl=False)
    for diagnostic in finding.diagnostics():
        click.echo(str(diagnostic))
    actions.annotate(finding.annotations())
    actions.summarise(finding.summary())
    actions.output(
        plan_id=made.plan_id if made and made.mode == "online" else "",
        applyable=str(bool(made and made.applyable)).lower(),
        changes=str(bool(made and made.has_changes)).lower(),
    )
