"""`arena init`: a working infra repository, from nothing or from a manifest and a reward one already has."""

from __future__ import annotations

import ast
import csv
import json
import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click
from click.core import ParameterSource

from arena_gitops.cli.session import Session
from arena_gitops.cli.starter.files import Choices, files
from arena_gitops.errors import Severity, UsageError
from arena_gitops.repo import git, yaml

HOSTED = "hosted"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="Name of the stack. Default: that of the folder.")
@click.option("--owner", default="my-team", show_default=True, help="Who answers for what is in it.")
@click.option(
    "--target", default="local", show_default=True, metavar="local|hosted|URL", help="Where it shall run."
)
@click.option("--from-manifest", type=_FILE, help="A training manifest to start with, taken verbatim.")
@click.option("--reward", type=_FILE, help="A Python file with a reward function, taken verbatim.")
@click.option("--dataset", type=_FILE, help="A CSV or JSON lines file with questions and answers.")
@click.option(
    "--github", is_flag=True, help="Add workflows that plan in pull requests and apply after merges."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask; take the defaults for what is not said.")
@click.pass_context
def init(
    ctx: click.Context,
    *,
    folder: Path,
    name: str | None,
    owner: str,
    target: str,
    from_manifest: Path | None,
    reward: Path | None,
    dataset: Path | None,
    github: bool,
    yes: bool,
) -> None:
    """Write a working infra repository.

    At a terminal it asks for what is not said.

    What you do not bring is a small sample, so that the first plan works at once. Nothing that exists is
    overwritten.
    """
    session = ctx.ensure_object(Session)
    if session.interactive and not yes:
        name, owner, target, github = _asked(ctx, folder, name, owner, target)
    url = None if target in {"local", HOSTED} else _url(target)
    if github and target == "local":
        raise UsageError("--github is for a server that GitHub's machines can reach: add --target https://…")
    stack = _slug(name or folder.resolve().name, "--name")
    manifest = from_manifest.read_bytes() if from_manifest else None
    source = reward.read_bytes() if reward else None
    choices = Choices(
        stack=stack,
        name=_subject(manifest, from_manifest) if manifest and from_manifest else stack,
        owner=_slug(owner, "--owner"),
        url=url,
        hosted=target == HOSTED,
        manifest=manifest,
        reward=source,
        function=_function(source, reward) if source and reward else "reward",
        dataset=(dataset.suffix.lower(), dataset.read_bytes()) if dataset else None,
        columns=_columns(dataset) if dataset else ("question", "answer"),
    )
    found = files(choices) | (_workflows(target) if github else {})
    _write(folder, found)
    git.start(folder)
    for path in found:
        click.echo(f"wrote {folder / path}")
    if dataset is None:
        session.say(
            f"data/ holds a made-up sample: put your rows there (datasets/{choices.name}.yaml names it)"
        )
    where = "" if folder == Path() else f"-C {folder} "
    session.say(f"next: arena {where}plan, then arena {where}apply")


def _asked(
    ctx: click.Context, folder: Path, name: str | None, owner: str, target: str
) -> tuple[str | None, str, str, bool]:
    """What a person decides who was not told all of it on the command line."""

    def ask(option: str, question: str, default: str) -> str:
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            return str(ctx.params[option])
        return str(click.prompt(question, default=default, err=True))

    name = ask("name", "Name of the stack", _slug(name or folder.resolve().name, "--name"))
    owner = ask("owner", "Who answers for it", owner)
    target = ask("target", "Where shall it run (local, hosted, or the https:// address of a server)", target)
    github = bool(ctx.params["github"])
    if target != "local" and ctx.get_parameter_source("github") is ParameterSource.DEFAULT:
        github = click.confirm("Workflows for GitHub, which plan in pull requests?", default=True, err=True)
    return name, owner, target, github


def _write(folder: Path, found: dict[str, bytes]) -> None:
    taken = [path for path in found if (folder / path).exists()]
    if taken:
        raise UsageError(f"nothing was written, because these exist already: {', '.join(taken)}")
    for path, content in found.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def _workflows(target: str) -> dict[str, bytes]:
    top = resources.files("arena_gitops.cli.starter") / "github"
    meant = b"--target hosted" if target == HOSTED else b"--target prod"
    return {f".github/{path}": content.replace(b"--target prod", meant) for path, content in _tree(top, "")}


def _tree(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{prefix}{entry.name}"
        found += _tree(entry, f"{path}/") if entry.is_dir() else [(path, entry.read_bytes())]
    return found


def _url(target: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9.:/_-]+", target):
        raise UsageError(
            f"--target {target!r}: expected `local`, `hosted`, or the https://… address of a server"
        )
    return target


def _slug(text: str, option: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-")
    if not slug:
        raise UsageError(f"{option} {text!r}: expected a name of letters, digits and dashes")
    return slug


def _subject(manifest: bytes, path: Path) -> str:
    """What a manifest is about: its environment's name, else the file's."""
    reading = yaml.read(manifest, path.name)
    wrong = [str(problem) for problem in reading.problems if problem.severity is Severity.ERROR]
    if wrong:
        raise UsageError(f"--from-manifest {path} is no manifest: {'; '.join(wrong)}")
    document = reading.documents[0].value if reading.documents else None
    environment = document.get("environment") if isinstance(document, dict) else None
    name = environment.get("name") if isinstance(environment, dict) else None
    return _slug(name if isinstance(name, str) else path.stem, "--from-manifest")


def _function(source: bytes, path: Path) -> str:
    """The function that scores; read, never run."""
    try:
        tree = ast.parse(source, filename=path.name)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"Python cannot read --reward {path}: {error}") from error
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if "reward" in names or len(names) == 1:
        return "reward" if "reward" in names else names[0]
    raise UsageError(
        f"--reward {path}: expected a function called `reward`, found {', '.join(names) or 'none'}"
    )


def _columns(path: Path) -> tuple[str, str]:
    """The columns of a question and its answer, by name, whatever their capitals."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        match path.suffix.lower():
            case ".csv":
                names = next(csv.reader(file), [])
            case ".jsonl":
                names = _keys(file.readline(), path)
            case _:
                raise UsageError(f"--dataset {path}: expected a .csv or .jsonl file")
    known = {name.strip().lower(): name for name in names}
    if "question" not in known or "answer" not in known:
        raise UsageError(
            f"--dataset {path}: expected columns question and answer, found {', '.join(names) or 'none'}"
        )
    return known["question"], known["answer"]


def _keys(line: str, path: Path) -> list[str]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UsageError(f"--dataset {path}:1: expected one JSON object a line: {error}") from error
    return [str(key) for key in row] if isinstance(row, dict) else []
