"""`arena fmt`: the even layout of resource documents. Values, comments and order stay; manifests are left alone."""

from __future__ import annotations

from pathlib import Path

import click

from arena_gitops.cli.session import Session
from arena_gitops.repo.git import find_root
from arena_gitops.repo.layout import layouts


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when a file would be changed.")
@click.pass_context
def fmt(ctx: click.Context, *, check: bool) -> None:
    """Lay out the repository's YAML files evenly.

    Prints each file that is (or would be) changed. Values, comments and order stay as they are; manifests,
    which are read verbatim, are not touched.
    """
    session = ctx.ensure_object(Session)
    found = layouts(find_root(Path.cwd()))
    uneven = [layout for layout in found if layout.differs]
    for layout in uneven:
        if not check:
            layout.place.write_bytes(layout.after)
        click.echo(layout.path)
    what = "would be laid out anew" if check else "laid out anew"
    session.say(f"{len(uneven)} of {len(found)} files {what}")
    ctx.exit(1 if check and uneven else 0)
