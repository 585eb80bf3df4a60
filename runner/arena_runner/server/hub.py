"""The Hugging Face hub as this server sees it: where it is, what a search finds, the files of a split.

`settings.yaml: hub.endpoint`, else the variable HF_ENDPOINT, else huggingface.co; workers are told the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from arena_gitops.spec.job import HubDataset
from arena_runner.data import DataError
from arena_runner.faults import OutsideError
from arena_runner.hub_silence import unanswered
from arena_runner.rollouts.hub import split_files
from arena_runner.server.refusals import RefusedError
from arena_runner.server.settings import Settings

ENDPOINT = "HF_ENDPOINT"
PUBLIC = "https://huggingface.co"
FOUND_AT_MOST = 50
SEARCH_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Split:
    """The files of a split, as they lie on this machine now."""

    revision: str
    files: tuple[Path, ...]


def endpoint(settings: Settings) -> str:
    """The hub's address."""
    return (settings.hub.endpoint or os.environ.get(ENDPOINT) or PUBLIC).rstrip("/")


def environment(settings: Settings) -> dict[str, str]:
    """What a worker is told, when the settings say something."""
    return {ENDPOINT: settings.hub.endpoint} if settings.hub.endpoint else {}


def search(settings: Settings, text: str) -> list[dict[str, Any]]:
    """Datasets whose id or description has the text, the most downloaded first; 502 when the hub does not answer."""
    where = endpoint(settings)
    query = {"search": text, "limit": str(FOUND_AT_MOST), "sort": "downloads"}
    try:
        answer = httpx.get(f"{where}/api/datasets", params=query, timeout=SEARCH_TIMEOUT_S)
        answer.raise_for_status()
        found = answer.json()
    except (httpx.HTTPError, ValueError) as problem:
        message = f"the hub at {where} cannot be searched now ({problem}); without a search, registered datasets are listed"
        raise RefusedError(502, "hub-unreachable", message) from problem
    return [_row(one) for one in found if isinstance(one, dict)]


def fetch(settings: Settings, wanted: HubDataset, folder: Path) -> Split:
    """Download a split into `folder`.

    Raises:
        DataError: There is no such dataset, revision or split.
        OutsideError: The hub does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    where = endpoint(settings)
    api = HfApi(endpoint=where)
    try:
        info = api.dataset_info(wanted.id, revision=wanted.revision)
        revision = info.sha or wanted.revision or "main"
        names = split_files((file.rfilename for file in info.siblings or ()), wanted)
        files = [
            api.hf_hub_download(wanted.id, name, repo_type="dataset", revision=revision, local_dir=folder)
            for name in names
        ]
    except DataError:
        raise
    except Exception as problem:
        if unanswered(problem):
            raise OutsideError(f"{wanted.id}: the hub at {where} does not answer ({problem})") from problem
        if not isinstance(problem, HfHubHTTPError):
            raise
        status = problem.response.status_code
        what = "holds no such dataset or revision" if status in {401, 404} else f"answers {status}"
        raise DataError(f"{wanted.id}: the hub at {where} {what}") from problem
    return Split(revision, tuple(Path(file) for file in files))


def _row(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": found.get("id"),
        "hf_dataset_id": found.get("id"),
        "downloads": found.get("downloads") or 0,
        "likes": found.get("likes") or 0,
        "description": (found.get("description") or "").strip(),
    }
