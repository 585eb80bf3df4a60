"""Whatever people type for the published client, ours understands: the same commands, positionals and options."""

from __future__ import annotations

import json
import subprocess

import click
import pytest

from arena_gitops.cli.main import COMMANDS, LazyGroup

NOT_OURS = {"memory", "on-prem"}
"""Groups without a counterpart: a calculator for hosted GPUs, and the installer of their own cluster."""

DUMP = """
import json, click
from agilerl.arena.cli import main
def walk(group, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))
        else:
            options = [o for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)]
            arguments = [[p.name, p.required] for p in command.params if isinstance(p, click.Argument)]
            choices = {o: list(p.type.choices) for p in command.params for o in p.opts if isinstance(p.type, click.Choice)}
            yield " ".join((*path, name)), options, arguments, choices
print(json.dumps(list(walk(main))))
"""


def ours(path: str) -> click.Command | None:
    """Our command of the same name; None when there is none."""
    first, *rest = path.split()
    if first not in COMMANDS:
        return None
    context = click.Context(click.Command("arena"))
    command = LazyGroup().get_command(context, first)
    for name in rest:
        command = command.get_command(context, name) if isinstance(command, click.Group) else None
    return command


@pytest.mark.parametrize("version", ["0.9.0", "1.29.0"])
def test_every_command_option_and_positional_of_theirs_is_understood(python_of, version, tmp_path):
    told = subprocess.run(
        [python_of(version), "-c", DUMP],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path)},
    )
    problems = []
    for path, options, arguments, choices in json.loads(told.stdout):
        if path.split()[0] in NOT_OURS:
            continue
        command = ours(path)
        if command is None:
            problems.append(f"{path}: no such command")
            continue
        known = {o: p for p in command.params for o in (*p.opts, *p.secondary_opts)}
        problems += [
            f"{path}: no {option}" for option in options if option not in known and option != "--help"
        ]
        mine = [[p.name, p.required] for p in command.params if isinstance(p, click.Argument)]
        if [required for _, required in mine] != [required for _, required in arguments]:
            problems.append(f"{path}: takes {mine}, theirs {arguments}")
        for option, wanted in choices.items():
            if option in known and set(wanted) - set(getattr(known[option].type, "choices", wanted)):
                problems.append(f"{path} {option}: not all of {wanted}")
    assert problems == []
