"""What a job reads is brought to this machine: by digest, verified, and not again if it is here already."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from arena_gitops.errors import ArenaError
from arena_gitops.spec.job import DatasetInput, JobSpec
from arena_runner.checkpoint import file_digest, state_folders
from arena_runner.model_cache import models_folder
from arena_runner.patience import patiently
from arena_runner.ports import Materials
from arena_runner.sandbox.libraries import with_libraries
from arena_runner.sandbox.packages import Wheels
from arena_runner.server_link import ServerLink
from arena_runner.split_cache import split_paths
from arena_runner.wheel_cache import wheels_folder

AWAY_S = 1800.0
"""how long a worker waits for a server that is away once it has a job"""


def bring(
    job: JobSpec, link: ServerLink, folder: Path, models_dir: Path | None, cache: Path | None = None
) -> Materials:
    """Download what the job names by digest, unless it is here already.

    With a `cache` (of models; that of wheels is beside it) the base model is the server's, where it has it, and so are
    the packages that user code requires and rows of the hub. Without one this is the server's own machine: the model is
    sought in `models_dir` and on the hub, packages in the index, rows on the hub.
    """
    inputs = job.inputs
    return Materials(
        workdir=folder,
        dataset=_dataset(inputs.dataset, link, folder, cache),
        reward=_laid_out(link, folder, "reward", inputs.reward.files) if inputs.reward else None,
        environment=_laid_out(link, folder, "environment", inputs.environment.files)
        if inputs.environment and inputs.environment.files
        else None,
        base=_laid_out(link, folder, "base", inputs.base.files) if inputs.base else None,
        resume=_resume(job, link, folder),
        models_dir=_models(job, link, cache) or models_dir,
        wheels=_wheels(job, link, cache),
    )


def _dataset(
    source: DatasetInput | None, link: ServerLink, folder: Path, cache: Path | None
) -> tuple[Path, ...]:
    if source is not None and source.digest:
        return (_blob(link, folder, source.digest, Path(f"dataset.{source.format or 'csv'}")),)
    if source is not None and source.hf and cache is not None:
        return split_paths(link, cache.parent / "splits", AWAY_S)
    return ()


def _models(job: JobSpec, link: ServerLink, cache: Path | None) -> Path | None:
    if cache is None or job.model is None:
        return None
    return models_folder(link, job.model, cache, AWAY_S)


def _wheels(job: JobSpec, link: ServerLink, cache: Path | None) -> Wheels | None:
    reward, environment = job.inputs.reward, job.inputs.environment
    required = bool(reward and reward.requirements) or bool(environment and with_libraries(environment))
    return wheels_folder(link, cache.parent / "wheels", AWAY_S) if required and cache is not None else None


def _blob(link: ServerLink, folder: Path, digest: str, name: Path) -> Path:
    target = folder / "inputs" / name
    if not (target.is_file() and file_digest(target) == digest):
        patiently(lambda: link.get(digest, target), AWAY_S)
    return target


def _laid_out(link: ServerLink, folder: Path, name: str, files: Mapping[str, str]) -> Path:
    """A folder that holds exactly these files, under their own paths."""
    root = folder / "inputs" / name
    wanted = {_inside(path) for path in files}
    for old in [path for path in root.rglob("*") if path.is_file()]:
        if old.relative_to(root) not in wanted:
            old.unlink()
    for path, digest in files.items():
        _blob(link, folder, digest, Path(name) / _inside(path))
    return root


def _inside(path: str) -> Path:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise ArenaError(f"the job names a file outside its folder: {path}")
    return Path(pure)


def _resume(job: JobSpec, link: ServerLink, folder: Path) -> Path | None:
    """The resume state: this machine's own copy where it has it, else from the server."""
    if job.resume is None:
        return None
    for state in state_folders(folder / "states"):
        if int(state.name) == job.resume.iteration and _same(state, job.resume.files):
            return state
    shutil.rmtree(folder / "inputs" / "resume", ignore_errors=True)
    return _laid_out(link, folder, "resume", job.resume.files)


def _same(state: Path, files: Mapping[str, str]) -> bool:
    return all(
        (state / name).is_file() and file_digest(state / name) == digest for name, digest in files.items()
    )
