"""`arena`: the table of commands, and the one place where an exception becomes an exit code.

Nothing heavier than click may be imported here: `arena --help` prints the table below without loading a
single command. A command raises errors of `arena_gitops.errors` and never calls `sys.exit`.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

import click

from arena_gitops import __version__
from arena_gitops.cli.session import Session

NAMES = ("arena", "arena-gitops")
COLLECT_AFTER = 200_000
"""Objects between two looks for garbage: a command makes many, keeps most, and is soon over."""
EXIT_USAGE = 64  # click's own 2 would read as `changes present` in CI

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("arena_gitops.cli.init:init", "Write a working infra repository."),
    "plan": ("arena_gitops.cli.plan:plan", "Show what an apply would change, cost and start."),
    "apply": ("arena_gitops.cli.apply:apply", "Make the platform what the repository says."),
    "destroy": ("arena_gitops.cli.destroy:destroy", "Take what this stack has off the platform."),
    "import": ("arena_gitops.cli.importing:import_", "Write what commands have made as files to commit."),
    "validate": ("arena_gitops.cli.validate:validate", "Check the repository's files; reach no platform."),
    "explain": ("arena_gitops.cli.explain:explain", "Show why a resource is, or is not, trained anew."),
    "drift": ("arena_gitops.cli.drift:drift", "Show where the platform is not as the repository says."),
    "fmt": ("arena_gitops.cli.fmt:fmt", "Lay out the repository's YAML files evenly."),
    "check": ("arena_gitops.cli.check:check", "Check datasets, rewards and experiments before a run."),
    "status": ("arena_gitops.cli.status:status", "Show the runs and deployments of this stack."),
    "runs": ("arena_gitops.cli.runs:runs", "Show, follow and stop runs."),
    "checkpoints": ("arena_gitops.cli.checkpoints:checkpoints", "Take trained checkpoints home."),
    "rollback": ("arena_gitops.cli.rollback:rollback", "Serve an earlier revision again, and hold it there."),
    "unlock": ("arena_gitops.cli.unlock:unlock", "End the lease that an apply holds on this stack."),
    "resume": (
        "arena_gitops.cli.rollback:resume",
        "End a hold: of a rollback, a failed rollout, or a run.",
    ),
    "login": ("arena_gitops.cli.login:login", "Log in to a server."),
    "logout": ("arena_gitops.cli.login:logout", "Log out of a server."),
    "user": ("arena_gitops.cli.imperative.user:user", "Show who you are to the server, and what was spent."),
    "secrets": (
        "arena_gitops.cli.imperative.secrets:secrets",
        "Store values that rewards are given by name.",
    ),
    "projects": ("arena_gitops.cli.imperative.projects:projects", "List, create and delete projects."),
    "datasets": ("arena_gitops.cli.imperative.datasets:datasets", "List, create and delete datasets."),
    "env": ("arena_gitops.cli.imperative.environments:env", "Register, validate and profile environments."),
    "experiments": (
        "arena_gitops.cli.imperative.experiments:experiments",
        "Submit, follow, stop and resume experiments.",
    ),
    "agent": ("arena_gitops.cli.imperative.agent:agent", "Deploy, list and use what is served."),
    "resources": ("arena_gitops.cli.imperative.resources:resources", "Show the compute of the server."),
    "models": ("arena_gitops.cli.imperative.models:models", "Show the base models of the server."),
    "manifest": ("arena_gitops.cli.imperative.manifest:manifest", "Check a training manifest by itself."),
    "server": ("arena_gitops.cli.server:server", "Start, stop and inspect the local server."),
    "ci": ("arena_gitops.cli.ci.group:ci", "Plan, comment and apply in a GitHub workflow."),
    "schema": ("arena_gitops.cli.schema:schema", "Print the JSON Schema of a kind."),
    "completion": ("arena_gitops.cli.completion:completion", "Print a shell's completion script."),
}
"""name → where its click command is, and the one line that `arena --help` prints (a test compares them)."""

SECTIONS = {"init": "A repository", "login": "Single things, by name", "server": "Around it"}
"""The command that a section of `arena --help` begins with → its heading."""


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that was asked for."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # a wrong table, found by the first test
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name for an unknown one, without importing any."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; commands: {', '.join(COMMANDS)}"
            ctx.fail(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table's own lines."""
        starts = [*map(list(COMMANDS).index, SECTIONS), len(COMMANDS)]
        lines = [(name, line) for name, (_, line) in COMMANDS.items()]
        for heading, first, end in zip(SECTIONS.values(), starts, starts[1:], strict=False):
            with formatter.section(heading):
                formatter.write_dl(lines[first:end])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="arena", message="%(prog)s %(version)s (arena-gitops)")
@click.option(
    "-C",
    "--chdir",
    type=click.Path(exists=True, file_okay=False),
    help="Run as if started in this folder.",
)
@click.pass_obj
def arena(session: Session, chdir: str | None) -> None:
    """Experiments as code: plan, train a population, promote, serve.

    Exit codes: 0 done, 1 error, 2 changes present (plan and drift --detailed-exitcode only), 3 blocked, 4 stale,
    5 locked, 6 not allowed, 7 partly applied, 8 changes where none were expected, 9 timed out,
    10 check or run failed, 64 usage, 65 invalid repository, 130/143 interrupted.
    """
    if chdir is not None:
        session.chdir(chdir)


def main() -> NoReturn:
    """Entry point of the scripts `arena` and `arena-gitops`."""
    called = os.path.basename(sys.argv[0])  # noqa: PTH119  # pathlib costs a tenth of the start-up budget
    sys.exit(run(sys.argv[1:], name=called if called in NAMES else NAMES[0]))


def run(args: Sequence[str], *, name: str = "arena") -> int:
    """Run one command line and return its exit code; every exception ends here."""
    session = Session()
    gc.set_threshold(COLLECT_AFTER, 20, 100)
    before = signal.signal(signal.SIGTERM, _interrupt_on_sigterm(session))
    try:
        if args[:1] == ["plan"] and not {"-h", "--help"} & {*args}:
            if (said := _said_before(session, args)) is not None:
                click.echo(said, nl=False)
                return 0
            session.say("reading the repository")  # what follows takes seconds where it is large
        code = arena.main(args=list(args), prog_name=name, standalone_mode=False, obj=session)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, a closed pager) has seen enough; Python must not complain at its own exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except SystemExit as error:  # click's own way out of a closed pipe
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:  # noqa: BLE001  # the one choke point: it maps, reports and never hides
        return _report(error, session)
    finally:
        session.close()
        signal.signal(signal.SIGTERM, before)
    return code if isinstance(code, int) else 0


def _said_before(session: Session, args: Sequence[str]) -> str | None:
    """The answer of the last time, where nothing has moved; else the question is kept for the next time."""
    from arena_gitops.cli import glance

    session.question = glance.question(args, os.environ)
    return glance.answer(session.question, os.environ) if session.question is not None else None


def _interrupt_on_sigterm(session: Session) -> signal._HANDLER:
    """SIGTERM takes the same way out as ctrl-C, so that an apply in flight is finished and recorded."""

    def handle(number: int, _frame: FrameType | None) -> None:
        session.signal = number
        raise KeyboardInterrupt

    return handle


def _report(error: BaseException, session: Session) -> int:
    if isinstance(error, click.UsageError):
        error.show()
        return EXIT_USAGE
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    from arena_gitops.cli.report_error import report

    return report(error, session)
