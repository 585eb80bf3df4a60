"""`arena schema`: the JSON Schemas that editors and other tools read, as this version has them."""

from __future__ import annotations

import json
from typing import Any

import click

from arena_gitops.plan.model import Plan
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.schema import schemas


@click.command()
@click.argument("kind")
def schema(kind: str) -> None:
    """Print the JSON Schema of a kind.

    KIND is a resource kind (dataset, reward, experiment …), or stack, manifest, plan, job or event. In an
    editor: `# yaml-language-server: $schema=experiment.schema.json` at the top of a file.
    """
    known = _known()
    if kind.lower() not in known:
        raise click.UsageError(f"no schema {kind!r}; {suggestion(kind.lower(), known)}")
    click.echo(json.dumps(known[kind.lower()], indent=2, ensure_ascii=False))


def _known() -> dict[str, dict[str, Any]]:
    return {**schemas(), "plan": Plan.model_json_schema(by_alias=True)}
