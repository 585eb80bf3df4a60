"""Rows on the Hugging Face hub: which files hold a split, and how they come down.

The `datasets` package is not needed: a split is its parquet, JSON-lines or CSV files. A dataset that only has a
loading script is refused, because it would run foreign code in the trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from arena_gitops.spec.job import HubDataset
from arena_runner.data import DataError
from arena_runner.faults import OutsideError
from arena_runner.hub_silence import unanswered

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")


def split_files(names: Iterable[str], hub: HubDataset) -> list[str]:
    """Choose a split's files among a repository's: the split is a word of the path, the config a folder or word.

    Parquet wins over JSON lines, JSON lines over CSV. A repository with a single data file holds its only split.
    """
    names = sorted(names)
    for suffix in SUFFIXES:
        found = [name for name in names if name.endswith(suffix)]
        wanted = [name for name in found if _words(hub.split) <= _words(name)]
        if hub.config and (named := [name for name in wanted if _words(hub.config) <= _words(name)]):
            wanted = named
        if wanted or len(found) == 1:
            return wanted or found
    raise DataError(
        f"{hub.id}: found no {'/'.join(SUFFIXES)} file of split {hub.split!r}; the repository holds "
        f"{', '.join(names[:12]) or 'no files'}"
    )


def _words(text: str) -> set[str]:
    return set(re.split(r"[/._-]", text.lower()))


def fetch_split(hub: HubDataset) -> list[Path]:
    """Download a split's files (or find them in the hub's cache) and return their paths.

    Raises:
        DataError: The hub answers that there is no such thing, or not for us: trying again changes nothing.
        OutsideError: The hub does not answer.
    """
    from huggingface_hub import HfApi, hf_hub_download

    try:
        names = HfApi().list_repo_files(hub.id, repo_type="dataset", revision=hub.revision)
        return [
            Path(hf_hub_download(hub.id, name, repo_type="dataset", revision=hub.revision))
            for name in split_files(names, hub)
        ]
    except Exception as error:
        at = f" at revision {hub.revision}" if hub.revision else ""
        if unanswered(error):
            raise OutsideError(f"dataset {hub.id}{at}: the hub does not answer ({error})") from error
        if (said := _refusal(error)) is None:
            raise
        raise DataError(f"dataset {hub.id}{at}: {said}") from error


def _refusal(error: Exception) -> str | None:
    """What the hub said no to, in words; None for what is not its answer."""
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RevisionNotFoundError

    if isinstance(error, RevisionNotFoundError):
        return "the hub has no such revision; check `hf.revision`"
    if isinstance(error, GatedRepoError):
        return "the hub wants its conditions accepted first; do so there, and give the worker HF_TOKEN"
    if isinstance(error, HFValidationError):
        return f"the hub does not take this name ({error}); expected owner/name in `hf.id`"
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in {401, 403, 404}:
        return f"the hub answers {status}: there is none of that name, or it is private; check `hf.id` and HF_TOKEN"
    return None
