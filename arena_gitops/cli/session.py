"""What one invocation knows about itself: how it shall print, what interrupted it, where the user stands.

Passed as click's context object. Light: imported for `arena --help`.
"""

from __future__ import annotations

import os
import sys
from signal import SIGINT

import click


class Session:
    """One run of the command line."""

    def __init__(self) -> None:
        self.json = False
        """stdout carries exactly one JSON document; everything for people goes to stderr"""
        self.signal: int = SIGINT
        """the signal behind a KeyboardInterrupt"""
        self.printed = False
        """whether the JSON document is out already"""

    def chdir(self, folder: str) -> None:
        """`--chdir`: relative paths of later options are read from there, as with `make -C`."""
        os.chdir(folder)

    def say(self, message: str) -> None:
        """A line about what is going on: stderr, never stdout."""
        click.echo(message, err=True)

    def emit(self, document: str) -> None:
        """Print the one JSON document."""
        click.echo(document)
        self.printed = True

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty()
