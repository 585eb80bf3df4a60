"""`arena-runner`: one command per process of the project, each imported only when it is asked for.

To add a command: write a click command somewhere in this package and name it in `COMMANDS`. A module that
cannot be imported (torch is not installed, say) breaks its own command and no other.
"""

from __future__ import annotations

import os
from importlib import import_module

import click

from arena_gitops.errors import ArenaError

# Before torch is loaded: its threads then sleep at a barrier instead of spinning. On a busy two-core machine two
# spinning threads took seven times the CPU and ten times the time of one; two sleeping ones took no more than it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

COMMANDS: dict[str, tuple[str, str]] = {
    "server": ("arena_runner.server.main:command", "Run the control plane of one home."),
    "token": ("arena_runner.server.token_command:command", "Make, list and revoke tokens of a server."),
    "key": ("arena_runner.server.key_command:command", "Replace the key of a server's secrets."),
    "backup": ("arena_runner.server.backup.make:command", "Copy everything a server knows into one file."),
    "restore": ("arena_runner.server.backup.restore:command", "Make a server's home out of a backup."),
    "work": ("arena_runner.work:command", "Take jobs from a server and train them."),
    "train": ("arena_runner.foreground:command", "Train a manifest here, without a server."),
    "serve": ("arena_runner.serving.main:command", "Serve one base model and its adapters."),
    "serve-policies": ("arena_runner.serving.policy_app:command", "Serve policies that act."),
    "merge": ("arena_runner.merge:command", "Make one model of an adapter and its base."),
    "check": ("arena_runner.checks.main:command", "Run dataset and reward checks here, without a server."),
    "sample": ("arena_runner.sample:command", "Ask a base model, for checks: JSON in, JSON out."),
    "openapi": ("arena_runner.server.api.described:command", "Describe the server's API as OpenAPI."),
    "models": ("arena_runner.fetch:command", "Fetch and list base models."),
}
"""command → where it is defined, and the line that `--help` shows without importing it"""

MISSING = 'needs {name}, which is not installed: pip install "arena-runner[train]"'


class LazyGroup(click.Group):
    """Imports a command when it runs, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, installed extras or not."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; a missing library is one clear line."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as problem:
            message = f"arena-runner {cmd_name} {MISSING.format(name=problem.name)}"
            raise click.ClickException(message) from problem
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name][0]} is no click command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run; what goes wrong on purpose is one line and its own exit code, not a traceback."""
        try:
            answer: object = super().invoke(ctx)
        except ArenaError as problem:
            click.echo(f"error: {problem}", err=True)
            raise SystemExit(problem.exit_code) from problem
        return answer

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, so that `--help` stays fast."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="arena-runner")
def main() -> None:
    """Train, serve and keep the books: the runner behind arena-gitops."""


if __name__ == "__main__":
    main()
