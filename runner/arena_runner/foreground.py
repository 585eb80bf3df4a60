"""`arena-runner train`: the job a server would give to a worker, in this terminal and without a server.

The same `train()` with other ports: events are printed and appended to `metrics.jsonl`; states, exports and a
summary lie in the working folder. Called again with the same folder it goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from arena_gitops.errors import CheckFailedError, InterruptedByUserError, UsageError
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import (
    COLUMNS,
    Finished,
    JobEvent,
    JobInputs,
    JobSpec,
    ModelRef,
    ResumeState,
    RunState,
    TestScored,
)
from arena_runner import checkpoint
from arena_runner.checks.main import default_category, local_dataset, local_reward, read_manifest
from arena_runner.narrate import line
from arena_runner.ports import Files, InterruptedRunError, Materials, Stop
from arena_runner.sandbox import from_environment
from arena_runner.train import train as train_job

METRICS, SUMMARY = "metrics.jsonl", "summary.json"


class Terminal:
    """Ports of a run that nobody but this terminal follows."""

    def __init__(self, folder: Path, *, append: bool) -> None:
        self._file = (folder / METRICS).open("a" if append else "w", encoding="utf-8")
        self._seq = 0
        self.interrupted = False
        self.test_scores: list[dict[str, Any]] = []

    def emit(self, event: JobEvent, files: Files | None = None) -> None:
        """Print what people want to read, keep all of it."""
        self._seq += 1
        event = event.model_copy(update={"seq": self._seq, "ts": time.time()})
        self._file.write(event.model_dump_json() + "\n")
        self._file.flush()
        if isinstance(event, TestScored):
            self.test_scores.append(event.scores.model_dump(mode="json"))
        if text := line(event):
            click.echo(text)

    def stop(self) -> Stop | None:
        """Ctrl-C ends the run at the end of the iteration."""
        return Stop.INTERRUPTED if self.interrupted else None

    def cap(self) -> int | None:
        """Nobody asks for less here."""
        return None

    def close(self) -> None:
        """Close the file of events."""
        self._file.close()


@click.command("train")
@click.argument("manifest", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--dataset",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV, JSONL or parquet.",
)
@click.option("--category", help="Default: the algorithm's.")
@click.option(
    "--column", "columns", multiple=True, metavar="ROLE=COLUMN", help="Repeatable; default: equal names."
)
@click.option("--reward", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Python file.")
@click.option("--function", default="reward", show_default=True, help="Name of the reward in its file.")
@click.option("--requirement", "requirements", multiple=True, help="Package the reward needs; repeatable.")
@click.option(
    "--model", help="Base model: folder, name in the models folder, or hub id. Default: the manifest's."
)
@click.option("--seed", type=int, help="Default: the manifest's mutation.rand_seed.")
@click.option("--workdir", type=click.Path(file_okay=False, path_type=Path), help="Default: runs/<manifest>.")
def command(manifest: Path, dataset: Path, workdir: Path | None, **options: Any) -> None:
    """Train MANIFEST in the foreground, without a server; Ctrl-C stops at the end of the iteration."""
    folder = workdir or Path("runs") / manifest.stem
    folder.mkdir(parents=True, exist_ok=True)
    finished = run(manifest, dataset, folder.resolve(), options)
    click.echo(f"exports, {METRICS} and {SUMMARY} are in {folder}")
    if finished.state == RunState.FAILED:
        raise CheckFailedError(f"the run failed ({finished.reason})")


def run(manifest: Path, dataset: Path, folder: Path, options: Mapping[str, Any]) -> Finished:
    """Make the job, train it, write the summary; raises InterruptedByUserError after Ctrl-C."""
    states = checkpoint.state_folders(folder / "states")
    job = make_job(manifest, dataset, options, states[-1] if states else None)
    _refuse_other_job(folder, job)
    materials = Materials(
        workdir=folder,
        dataset=(dataset.resolve(),),
        reward=options["reward"].resolve().parent if options["reward"] else None,
        resume=states[-1] if states else None,
        secrets=from_environment(os.environ),
    )
    ports = Terminal(folder, append=bool(states))
    try:
        with _ctrl_c(ports):
            finished = train_job(job, materials, ports)
        ports.emit(finished)
    except InterruptedRunError as error:
        raise InterruptedByUserError(f"stopped; the same command continues from {folder}") from error
    finally:
        ports.close()
    (folder / SUMMARY).write_text(json.dumps(_summary(folder, ports, finished), indent=2) + "\n")
    return finished


def make_job(manifest: Path, dataset: Path, options: Mapping[str, Any], state: Path | None) -> JobSpec:
    """The job a server would make of these files."""
    normal = read_manifest(manifest)
    category = options["category"] or default_category(normal)
    if category not in set(COLUMNS):
        raise UsageError(f"--category {category}: expected one of {', '.join(COLUMNS)}")
    blobs: dict[str, Path] = {}
    reward = options["reward"]
    network, mutation = normal.get("network"), normal.get("mutation")
    model = options["model"] or (
        network.get("pretrained_model_name_or_path") if isinstance(network, dict) else None
    )
    seed = options["seed"]
    if seed is None:
        seed = mutation["rand_seed"] if isinstance(mutation, dict) else 42
    return JobSpec(
        run_id="foreground",
        segment=0,
        experiment="foreground",
        fingerprint=sha256_json([normal, seed]),
        manifest=normal,
        inputs=JobInputs(
            dataset=local_dataset(dataset, category, options["columns"], blobs),
            reward=local_reward(reward, options["function"], options["requirements"], blobs)
            if reward
            else None,
        ),
        model=ModelRef(id=str(model)) if model else None,
        seed=int(str(seed)),
        tier="local",
        resume=ResumeState(iteration=int(state.name), files={}) if state else None,
    )


def _refuse_other_job(folder: Path, job: JobSpec) -> None:
    """A folder belongs to one job; only `max_steps` may differ from when it began."""
    known = folder / "job.json"
    own = job.model_copy(
        update={"resume": None, "fingerprint": "", "manifest": _without_budget(job.manifest)}
    )
    if known.exists() and known.read_text() != own.model_dump_json():
        raise UsageError(f"{folder} holds another job's run (see job.json); choose another --workdir")
    known.write_text(own.model_dump_json())


def _without_budget(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {**manifest, "training": {k: v for k, v in manifest["training"].items() if k != "max_steps"}}


@contextmanager
def _ctrl_c(ports: Terminal) -> Iterator[None]:
    """The first Ctrl-C asks for the end of the iteration, the second one ends at once."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        if ports.interrupted:
            raise KeyboardInterrupt
        ports.interrupted = True
        print("stopping at the end of this iteration; once more to stop now", file=sys.stderr)  # noqa: T201 - a signal handler must not use click's lock

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _summary(folder: Path, ports: Terminal, finished: Finished) -> dict[str, Any]:
    """What came out of all segments; the state of the last iteration knows."""
    summary: dict[str, Any] = {
        "state": finished.state,
        "reason": finished.reason,
        "message": finished.message,
    }
    if states := checkpoint.state_folders(folder / "states"):
        standing = checkpoint.load_standing(states[-1])
        best = checkpoint.best(standing.exports)
        dumped = standing.model_dump(mode="json")
        summary |= {
            "best": f"exports/step_{best.step}/m{best.member}" if best else None,
            "members": dumped["members"],
            "checkpoints": dumped["exports"],
            "lineage": dumped["lineage"],
        }
    return {**summary, "test_scores": ports.test_scores}
