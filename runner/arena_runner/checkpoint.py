"""Two things are saved: where a run stands (to go on) and what a member has learned (to be used).

A *resume state* is every tensor and counter of a run after an iteration; randomness is counter-based, so nothing
else is needed to continue bit for bit. An *export* is one member's adapter in peft's format with what was known when
it was saved. Both are written to a folder of another name, synced and renamed: they exist whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import ConfigDict
from safetensors.torch import load_file, save_file
from torch import Tensor

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import Checkpoint, Lineage, ResumeState
from arena_gitops.spec.resource import Frozen
from arena_runner.budgets import Budgets
from arena_runner.population.member import Member
from arena_runner.rollouts.task import Judged
from arena_runner.trained import Trained

STANDING = "standing.json"
ADAPTERS, MOMENTS, BEST = "adapters.safetensors", "moments.safetensors", "best.safetensors"
LIVED, PAGE = "lived.safetensors", "page-{:012d}-{:012d}.safetensors"
NOTE = "arena.json"
KEPT = 2
"""resume states kept on this machine"""


class Standing(Frozen):
    """Every counter of a run at the end of an iteration."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    members: tuple[Member, ...]
    budgets: Budgets
    iteration: int = 0
    """iterations of the run; an active member's own is the same"""
    generation: int = 0
    """ends of generations so far"""
    evolved_at: int = 0
    """iteration after which the last generation ended"""
    scores: tuple[tuple[float, ...], ...] = ()
    """last evaluation: per place the score of each row"""
    evaluated_at: int = 0
    lineage: tuple[Lineage, ...] = ()
    exports: tuple[Checkpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """Files on this machine by their digests."""

    folder: Path
    digests: Mapping[str, str]
    """file name → digest"""

    @property
    def files(self) -> dict[str, Path]:
        """Digest → local file."""
        return {digest: self.folder / name for name, digest in self.digests.items()}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.files.values())


@dataclass(frozen=True, slots=True)
class Tensors:
    """Every tensor of a run."""

    adapters: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]
    best: Mapping[str, Tensor]
    """weights of the best export so far, so that a later segment can score it; empty before the first"""
    lived: Mapping[str, Tensor] = field(default_factory=dict)
    """environments, unfinished rollouts, memory; empty for text"""
    page: tuple[str, Mapping[str, Tensor]] | None = None
    """name and rows of the replay's newest page"""
    pages: Mapping[str, tuple[Path, str]] = field(default_factory=dict)
    """name → file and digest of older pages that are still needed; kept by link, never written again"""


def save_state(root: Path, standing: Standing, tensors: Tensors) -> tuple[ResumeState, Saved]:
    """Write the resume state of an iteration and forget those before the last two."""

    def write(folder: Path) -> None:
        save_file(dict(tensors.adapters), folder / ADAPTERS)
        save_file(dict(tensors.moments), folder / MOMENTS)
        save_file(dict(tensors.best), folder / BEST)
        if tensors.lived:
            save_file(dict(tensors.lived), folder / LIVED)
        if tensors.page is not None:
            save_file(dict(tensors.page[1]), folder / tensors.page[0])
        for name, (path, _) in tensors.pages.items():
            _link(path, folder / name)
        (folder / STANDING).write_text(standing.model_dump_json())

    known = {name: digest for name, (_, digest) in tensors.pages.items()}
    saved = _write_whole(root / f"{standing.iteration:08d}", write, known)
    for old in state_folders(root)[:-KEPT]:
        shutil.rmtree(old)
    return ResumeState(iteration=standing.iteration, files=dict(saved.digests)), saved


def state_folders(root: Path) -> list[Path]:
    """Whole resume states on this machine, oldest first."""
    return sorted(folder for folder in root.glob("[0-9]*") if folder.name.isdigit())


def forget_after(root: Path, iteration: int) -> None:
    """Drop states of a segment that came further than anybody else learned; its iterations are done again."""
    for folder in state_folders(root):
        if int(folder.name) > iteration:
            shutil.rmtree(folder)


def load_state(folder: Path) -> tuple[Standing, Tensors]:
    """Read what `save_state` wrote."""
    adapters, moments, best = (load_file(folder / name) for name in (ADAPTERS, MOMENTS, BEST))
    lived = load_file(folder / LIVED) if (folder / LIVED).exists() else {}
    pages = {path.name: (path, file_digest(path)) for path in sorted(folder.glob("page-*"))}
    return load_standing(folder), Tensors(adapters, moments, best, lived, pages=pages)


def span(page: str) -> tuple[int, int]:
    """The rows of a page, from its name."""
    first, last = page.removesuffix(".safetensors").split("-")[1:]
    return int(first), int(last)


def save_export(
    root: Path,
    trained: Trained,
    member: Member,
    *,
    generation: int,
    judged: Judged | None,
    fitness: float | None,
) -> tuple[Checkpoint, Saved]:
    """Write what one member has learned, its hyperparameters and the probe by which loaded weights are recognised."""
    hyperparameters = {name: float(value) for name, value in member.hyperparameters.items()}

    def write(folder: Path) -> None:
        note = {
            **trained.save(member.index, folder),
            "step": member.step,
            "member": member.index,
            "generation": generation,
            "fitness": fitness,
            "hyperparameters": hyperparameters,
            "probe": asdict(judged.probe) if judged and judged.probe else None,
        }
        (folder / NOTE).write_text(json.dumps(note, indent=2, sort_keys=True) + "\n")

    saved = _write_whole(root / f"step_{member.step}" / member.name, write)
    checkpoint = Checkpoint(
        step=member.step,
        member=member.index,
        generation=generation,
        fitness=fitness,
        digest=sha256_json(dict(saved.digests)),
        files=dict(saved.digests),
        size_bytes=saved.size,
        hyperparameters=hyperparameters,
    )
    return checkpoint, saved


def load_standing(folder: Path) -> Standing:
    """Only the counters of a resume state."""
    return Standing.model_validate_json((folder / STANDING).read_text())


def best(exports: tuple[Checkpoint, ...]) -> Checkpoint | None:
    """The export with the highest fitness; ties to the earliest step, then the lowest member."""
    judged = [export for export in exports if export.fitness is not None]
    return max(judged, key=lambda e: (e.fitness or 0.0, -e.step, -e.member), default=None)


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _write_whole(
    target: Path, write: Callable[[Path], None], known: Mapping[str, str] | None = None
) -> Saved:
    """Let `write` fill a folder beside `target`, sync it, and rename it into place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    write(draft)
    known = known or {}
    digests = {path.name: known.get(path.name) or file_digest(path) for path in sorted(draft.iterdir())}
    for path in [*draft.iterdir(), draft]:
        _sync(path)
    if target.exists():  # the same iteration, done again after a kill between its rename and its report
        shutil.rmtree(target)
    draft.rename(target)
    _sync(target.parent)
    return Saved(target, digests)


def _link(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
