"""`arena-runner check`: the same checks on files of this machine, without a server."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import click
from pydantic import JsonValue

from arena_gitops.errors import CheckFailedError, UsageError
from arena_gitops.spec.job import COLUMNS, DatasetCategory, DatasetInput, JobInputs, RewardInput
from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.checks.match import WANTED
from arena_runner.checks.report import line, markdown, summarise
from arena_runner.checks.report import report as told
from arena_runner.checks.run import run_checks


@click.command("check")
@click.argument("manifest", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option(
    "--dataset", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="CSV, JSONL or parquet."
)
@click.option(
    "--category", type=click.Choice([str(c) for c in DatasetCategory]), help="Default: the algorithm's."
)
@click.option(
    "--column", "columns", multiple=True, metavar="ROLE=COLUMN", help="Repeatable; default: equal names."
)
@click.option("--reward", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Python file.")
@click.option("--function", default="reward", show_default=True, help="Name of the reward in its file.")
@click.option("--requirement", "requirements", multiple=True, help="Package the reward needs; repeatable.")
@click.option(
    "--forecast", is_flag=True, help="Ask the base model too: how many groups will carry no signal?"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Write a Markdown report here."
)
def command(
    *,
    manifest: Path | None,
    dataset: Path | None,
    category: str | None,
    columns: tuple[str, ...],
    reward: Path | None,
    function: str,
    requirements: tuple[str, ...],
    forecast: bool,
    as_json: bool,
    report: Path | None,
) -> None:
    """Check a dataset and a reward on this machine; with MANIFEST also whether they fit the algorithm."""
    if manifest is None and dataset is None and reward is None:
        raise UsageError("nothing to check: give MANIFEST, --dataset or --reward")
    blobs: dict[str, Path] = {}
    normal = read_manifest(manifest) if manifest else {}
    inputs = JobInputs(
        dataset=local_dataset(dataset, category or default_category(normal), columns, blobs)
        if dataset
        else None,
        reward=local_reward(reward, function, requirements, blobs) if reward else None,
    )
    if forecast and (manifest is None or dataset is None or reward is None):
        raise UsageError("--forecast needs MANIFEST, --dataset and --reward")
    address = str(manifest or reward or dataset)
    request = CheckRequest(address=address, manifest=normal, inputs=inputs, forecast=forecast)
    results: list[CheckResult] = []
    for result in run_checks(request, blobs.__getitem__, models=_models()):
        results.append(result)
        click.echo(result.model_dump_json() if as_json else line(result))
    summary = summarise(results)
    if report is not None:
        report.write_text(markdown(told(request, results)), encoding="utf-8")
    if as_json:
        click.echo(summary.model_dump_json())
    if summary.failed:
        raise CheckFailedError(f"{summary.failed} of {len(results)} checks failed")


def _models() -> Path:
    """Where this machine keeps models."""
    home = os.environ.get("ARENA_HOME")
    folder = os.environ.get("ARENA_MODELS_DIR")
    return Path(folder or (f"{home}/models" if home else "~/.local/share/arena-gitops/models")).expanduser()


def read_manifest(path: Path) -> dict[str, JsonValue]:
    """A manifest in normal form."""
    from ruamel.yaml import YAML

    from arena_gitops.spec.manifest import parse_manifest

    return parse_manifest(YAML(typ="safe").load(path.read_text("utf-8"))).manifest.normal()


def default_category(manifest: dict[str, JsonValue]) -> str:
    """The category the manifest's algorithm trains on; reasoning without a manifest."""
    section = manifest.get("algorithm")
    name = str(section.get("name")) if isinstance(section, dict) else ""
    return WANTED.get(name, DatasetCategory.REASONING)


def local_dataset(
    path: Path, category: str, columns: tuple[str, ...], blobs: dict[str, Path]
) -> DatasetInput:
    """A dataset file of this machine as a job would name it."""
    kind = DatasetCategory(category)
    mapping = {role: role for role in COLUMNS[kind]}
    for pair in columns:
        role, equals, column = pair.partition("=")
        if not equals or role not in mapping:
            raise UsageError(f"--column {pair}: expected ROLE=COLUMN with ROLE one of {', '.join(mapping)}")
        mapping[role] = column
    formats = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
    return DatasetInput.model_validate(
        {
            "address": f"dataset/{path.stem}",
            "category": kind,
            "column_mapping": mapping,
            "digest": _blob(path, blobs),
            "format": formats.get(path.suffix.lower(), "csv"),
        }
    )


def local_reward(
    path: Path, function: str, requirements: tuple[str, ...], blobs: dict[str, Path]
) -> RewardInput:
    """A reward file of this machine with the Python files beside and below it, which it may import."""
    folder = path.resolve().parent
    files = {
        found.relative_to(folder).as_posix(): _blob(found, blobs)
        for found in sorted(folder.rglob("*.py"))
        if not any(part.startswith(".") for part in found.relative_to(folder).parts)
    }
    return RewardInput(
        address=f"reward/{path.stem}",
        files=files,
        entry=path.name,
        function=function,
        requirements=requirements,
    )


def _blob(path: Path, blobs: dict[str, Path]) -> str:
    with path.open("rb") as file:
        digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    blobs[digest] = path
    return digest
