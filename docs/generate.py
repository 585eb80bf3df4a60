"""Pages that are made from the program itself: every kind from its schema, every command from its `--help`.

A hook of MkDocs. Nothing of it is stored, so nothing of it can be out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from arena_gitops.cli.main import arena
from arena_gitops.spec.schema import schemas

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
KINDS = ("stack", "project", "dataset", "environment", "reward", "experiment", "deployment", "manifest")
TITLES = {"stack": "arena.yaml", "manifest": "Manifest"}
EXAMPLE_OF = {
    "stack": "infra-repo/arena.yaml",
    "project": "infra-repo/experiments/project.yaml",
    "dataset": "infra-repo/datasets/word-problems.yaml",
    "reward": "infra-repo/rewards/word-problems.yaml",
    "experiment": "infra-repo/experiments/word-problems-grpo.yaml",
    "deployment": "infra-repo/deployments/word-problems.yaml",
    "manifest": "infra-repo/manifests/word_problems_grpo.yaml",
}

Schema = dict[str, Any]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those that are written."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> dict[str, str]:
    """Path → Markdown."""
    found = schemas()
    made = {f"kinds/{kind}.md": "\n".join(_kind(kind, found[kind])) for kind in KINDS}
    return {**made, "commands.md": "\n".join(_commands())}


def _kind(kind: str, schema: Schema) -> Iterator[str]:
    yield f"# {TITLES.get(kind, kind.capitalize())}"
    yield ""
    yield _cell(schema.get("description", ""))
    yield ""
    if (example := EXAMPLE_OF.get(kind)) is not None:
        yield f'```yaml title="examples/{example}"'
        yield (EXAMPLES / example).read_text().rstrip()
        yield "```"
        yield ""
    schema = _with_enums(schema, schema.get("$defs", {}))
    yield from _table(schema)
    for name, definition in sorted(schema.get("$defs", {}).items()):
        if "properties" in definition:
            yield f"## {name}"
            yield ""
            yield _cell(definition.get("description", ""))
            yield ""
            yield from _table(definition)
    yield f"The JSON Schema for editors: `arena schema {kind}`."


def _with_enums(value: Any, definitions: Schema) -> Any:
    """The same, with the values of an enumeration in the places that refer to it."""
    if isinstance(value, list):
        return [_with_enums(one, definitions) for one in value]
    if not isinstance(value, dict):
        return value
    meant = definitions.get(str(value.get("$ref", "")).rpartition("/")[2], {})
    if "enum" in meant:
        return {**value, "$ref": None, "enum": meant["enum"]}
    return {name: _with_enums(one, definitions) for name, one in value.items()}


def _table(schema: Schema) -> Iterator[str]:
    yield "| field | | default | |"
    yield "|---|---|---|---|"
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        if name in required:
            default = "required"
        elif "default" in field and field["default"] is not None:
            default = f"`{json.dumps(field['default'], ensure_ascii=False)}`"
        else:
            default = ""
        yield f"| `{name}` | {_type(field)} | {default} | {_cell(field.get('description', ''))} |"
    yield ""


def _type(field: Schema) -> str:
    if field.get("$ref"):
        name = str(field["$ref"]).rpartition("/")[2]
        return "any value" if name == "JsonValue" else f"[{name}](#{name.lower()})"
    if "const" in field or "enum" in field:
        return " or ".join(f"`{json.dumps(one)}`" for one in field.get("enum", [field.get("const")]))
    for several in ("anyOf", "oneOf", "allOf"):
        if several in field:
            parts = (_type(part) for part in field[several] if part.get("type") != "null")
            return " or ".join(dict.fromkeys(filter(None, parts)))
    return _plain_type(field)


def _plain_type(field: Schema) -> str:
    kind, inner = field.get("type", ""), field.get("items") or field.get("additionalProperties")
    of = _type(inner) if isinstance(inner, dict) else ""
    named = {"string": "text", "boolean": "true or false", "array": "list", "object": "mapping"}
    names = [kind] if isinstance(kind, str) else [one for one in kind if one != "string"]
    told = " or ".join(named.get(one, one) for one in names)
    return f"{told} of {of}" if of else told


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def _commands() -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield "What `--help` says. `arena-gitops` is the same program under a name that nothing else installs."
    yield ""
    yield from _command(arena, click.Context(arena, info_name="arena", **arena.context_settings), 2)


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * min(level, 4)} {context.command_path}"
    yield ""
    yield "```text"
    yield command.get_help(context)
    yield "```"
    yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _command(inner, click.Context(inner, info_name=name, parent=context), level + 1)
