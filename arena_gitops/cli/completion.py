"""`arena completion`: click's own completion scripts, by a name people find."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option(
    "--name", default="arena", show_default=True, help="The command to complete: arena or arena-gitops."
)
@click.pass_context
def completion(ctx: click.Context, shell: str, name: str) -> None:
    """Print a shell's completion script.

    bash: eval "$(arena completion bash)" in ~/.bashrc; zsh the same in ~/.zshrc; fish: arena completion fish
    > ~/.config/fish/completions/arena.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"this version of click cannot complete for {shell}")
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    click.echo(found(ctx.find_root().command, {}, name, variable).source())
