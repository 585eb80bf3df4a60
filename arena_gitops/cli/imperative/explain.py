"""The end of a command's help: how it is used, and what `--json` prints, read off the models that are printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from pydantic import BaseModel

Command = TypeVar("Command", bound=click.Command)


def explained(
    *examples: str, rows: type[BaseModel] | None = None, one: type[BaseModel] | None = None
) -> Callable[[Command], Command]:
    """Give a command its examples, and say what `--json` prints: an array (`rows`) or one object (`one`)."""

    def add(command: Command) -> Command:
        parts = ["\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)]
        if (model := rows or one) is not None:
            what = "an array of objects" if rows is not None else "one object"
            parts.append(f"--json prints {what} with {fields(model)}.")
        command.epilog = "\n\n".join(parts)
        return command

    return add


def fields(model: type[BaseModel]) -> str:
    """`name, id and type`."""
    names = list(model.model_fields)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
