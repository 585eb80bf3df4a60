"""`arena schema`: the JSON Schemas that editors and other tools read, as this version has them."""

from __future__ import annotations

from pathlib import Path

import click

from arena_gitops.plan.model import Plan
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.schema import Schema, named, rendered, schemas


@click.command()
@click.argument("kind", required=False)
@click.option(
    "--all",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write every schema to a folder.",
)
def schema(kind: str | None, folder: Path | None) -> None:
    """Print the JSON Schema of a kind.

    KIND is a resource kind (dataset, reward, experiment …), or stack, manifest, plan, job or event. In an
    editor: `# yaml-language-server: $schema=experiment.schema.json` at the top of a file.
    """
    known = _known()
    if folder is not None:
        _write(known, folder)
    elif kind is None or kind.lower() not in known:
        raise click.UsageError(f"no schema {kind!r}; {suggestion((kind or '').lower(), known)}")
    else:
        click.echo(rendered(known[kind.lower()]), nl=False)


def _write(known: dict[str, Schema], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in known.items():
        path = folder / f"{name}.schema.json"
        path.write_text(rendered(found), encoding="utf-8")
        click.echo(path)


def _known() -> dict[str, Schema]:
    return {**schemas(), "plan": named("plan", Plan.model_json_schema(by_alias=True))}
