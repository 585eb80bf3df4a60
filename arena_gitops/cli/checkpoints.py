"""`arena checkpoints`: take a trained adapter home, whole and verified."""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
from pathlib import Path
from shutil import rmtree

import click

from arena_gitops.cli import figures, options
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import open_stack
from arena_gitops.errors import BlockedError, PlatformError, UsageError
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.platforms.local import find_runner
from arena_gitops.spec.job import Checkpoint, RunStatus
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument

STEP = re.compile(r"step_(?P<step>\d+)(/m(?P<member>\d+))?")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What a checkpoint's file may be called: never a path out of the folder."""


@click.group(no_args_is_help=True)
def checkpoints() -> None:
    """Take trained checkpoints home."""


@checkpoints.command()
@click.argument("experiment")
@click.option(
    "--checkpoint", default="best", show_default=True, metavar="RULE", help="best, step_N or step_N/mK."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["adapter", "merged"]),
    default="adapter",
    show_default=True,
    help="adapter: a LoRA adapter as PEFT reads it; merged: one model with its base, made by arena-runner here.",
)
@click.option(
    "-o", "--out", type=click.Path(file_okay=False, path_type=Path), help="Default: ./EXPERIMENT-step_N-mK."
)
@options.target
@options.namespace
@options.json
@click.pass_obj
def pull(
    session: Session,
    *,
    experiment: str,
    checkpoint: str,
    form: str,
    out: Path | None,
    target: str | None,
    namespace: str,
) -> None:
    """Download a checkpoint of EXPERIMENT's current version, with a model card beside it.

    Every file is compared with its digest; the folder appears whole or not at all.
    """
    stack = open_stack(session, target, namespace)
    server = stack.own_server()
    name = experiment.removeprefix("experiment/")
    document = server.observe(stack.owner).resources.get(Address("experiment", name))
    if document is None or document.run is None:
        raise UsageError(f"stack {stack.owner.stack} has no trained experiment/{name} here")
    chosen = choose(document.run, checkpoint)
    folder = out or Path(f"{name}-{chosen.label.replace('/', '-')}")
    if folder.exists():
        raise BlockedError(f"{folder} exists; give another folder with --out")
    partial = folder.with_name(f".{folder.name}.part")
    rmtree(partial, ignore_errors=True)  # of a pull that was broken off
    partial.mkdir(parents=True)
    for file, digest in chosen.files.items():
        _download(server, digest, partial / _inside(file))
    if form == "merged":
        partial = _merged(partial)
    (partial / "README.md").write_text(card(document, document.run, chosen, form), "utf-8")
    partial.rename(folder)
    if session.json:
        session.emit(json.dumps({"folder": str(folder), "format": form, **chosen.model_dump(mode="json")}))
    else:
        click.echo(f"{chosen.label} of experiment/{name} v{document.version} is in {folder}")


def choose(run: RunStatus, rule: str) -> Checkpoint:
    """The checkpoint a rule names, as a deployment would; `step_N` is the fittest of the newest step at or before N."""
    if rule == "best" and run.best is not None:
        return run.best
    match = STEP.fullmatch(rule)
    before = [
        c
        for c in run.checkpoints
        if match and c.step <= int(match["step"]) and match["member"] in {None, str(c.member)}
    ]
    if not before:
        have = ", ".join(c.label for c in run.checkpoints) or "none"
        raise UsageError(f"run {run.run_id} has no checkpoint {rule}; there are: {have}")
    newest = max(c.step for c in before)
    return max((c for c in before if c.step == newest), key=lambda c: (_fitness(c), -c.member))


def _fitness(checkpoint: Checkpoint) -> float:
    """NaN and nothing are worse than anything."""
    value = checkpoint.fitness
    return -math.inf if value is None or math.isnan(value) else value


def card(document: ResourceDocument, run: RunStatus, chosen: Checkpoint, form: str = "adapter") -> str:
    """What the model is, where it comes from, and what it scored; with the head that model hubs read."""
    manifest = document.spec.get("manifest")
    model = document.spec.get("model")
    source = document.provenance
    facts = {
        "experiment": f"{document.name} v{document.version}, run {run.run_id}",
        "checkpoint": f"{chosen.label}, generation {chosen.generation}",
        "fitness": figures.score(chosen.fitness),
        "base model": json.dumps(model),
        "commit": f"{source.commit or 'none'}{' with uncommitted changes' if source.dirty else ''}",
        "run fingerprint": run.fingerprint,
        "checkpoint digest": chosen.digest,
        "format": "LoRA adapter (PEFT)" if form == "adapter" else "base and adapter merged (transformers)",
    }
    base = str(model.get("id")) if isinstance(model, dict) else "unknown"
    head = [
        "---",
        f"base_model: {json.dumps(base)}",
        f"library_name: {'peft' if form == 'adapter' else 'transformers'}",
        "---",
    ]
    scores = [f"- {line.strip()}" for line in figures.test_scores(run.test_scores)]
    digests = [f"- `{name}`: `{digest}`" for name, digest in sorted(chosen.files.items())]
    return "\n".join(
        [
            *head,
            "",
            f"# {document.name} {chosen.label}",
            "",
            *(f"- {key}: {value}" for key, value in facts.items()),
            *(["", "## Scores on rows nobody trained on", "", *scores] if scores else []),
            *("", "## Files of the adapter", "", *digests),
            *("", "## Manifest", "", "```json", json.dumps(manifest, indent=2, sort_keys=True), "```", ""),
        ]
    )


def _merged(adapter: Path) -> Path:
    """Have the runner of this machine merge; it knows tensors, and looks for the base where it looks for models."""
    out = adapter.with_name(f"{adapter.name}.merged")
    rmtree(out, ignore_errors=True)
    runner = find_runner()
    done = subprocess.run(
        [runner, "merge", adapter, "--out", out], capture_output=True, text=True, check=False
    )
    rmtree(adapter)
    if done.returncode:
        rmtree(out, ignore_errors=True)
        raise PlatformError(f"arena-runner merge failed: {done.stderr.strip()}")
    return out


def _inside(name: str) -> str:
    if not FILE_NAME.fullmatch(name):
        raise PlatformError(
            f"the checkpoint has a file {name!r}, which is no plain name; nothing was written"
        )
    return name


def _download(platform: HttpPlatform, digest: str, path: Path) -> None:
    found = hashlib.sha256()
    with path.open("wb") as file:
        for chunk in platform.download(digest):
            found.update(chunk)
            file.write(chunk)
    if f"sha256:{found.hexdigest()}" != digest:
        raise PlatformError(
            f"{path.name} arrived damaged: its digest is sha256:{found.hexdigest()}, not {digest}"
        )
