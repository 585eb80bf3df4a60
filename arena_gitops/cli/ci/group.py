"""`arena ci`: the group."""

from __future__ import annotations

import click

from arena_gitops.cli.ci.apply import apply
from arena_gitops.cli.ci.drift import drift
from arena_gitops.cli.ci.plan import plan
from arena_gitops.cli.ci.preview import preview
from arena_gitops.cli.ci.report import report
from arena_gitops.cli.ci.views import annotate, comment, summary


@click.group()
def ci() -> None:
    """Plan, comment and apply in a GitHub workflow.

    Reads what it needs from the files and variables GitHub sets (GITHUB_EVENT_PATH and so on). Set
    ARENA_BASE_URL to the server and ARENA_API_KEY to its key, so that no pull request can send the key
    elsewhere, and GITHUB_TOKEN to the job's token.
    """


for command in (plan, apply, preview, report, drift, comment, summary, annotate):
    ci.add_command(command)
