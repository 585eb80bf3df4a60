"""The door to MLflow: the few calls the server makes, by its own words. Only the tracker's thread uses it.

MLflow is imported when the first ledger is opened, so that a server whose MLflow is not up stays small. Every
call can be made again: what exists is found instead of made twice.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_runner.server.points import Point

METRICS_AT_ONCE = 1000
PARAMS_AT_ONCE = 100
TAG_LIMIT = 4000
"""MLflow refuses longer values."""

# The tracker itself tries again; waiting inside a call would only hide that MLflow is down.
CLIENT_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}

PERMANENT = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A checkpoint to be registered."""

    model: str
    run_id: str
    """the member's MLflow run"""
    folder: str
    """of its artifacts"""
    tags: Mapping[str, str]
    description: str


class Ledger:
    """One MLflow server."""

    def __init__(self, uri: str) -> None:
        for name, value in CLIENT_SETTINGS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self.uri = uri
        self._client: Any = MlflowClient(uri, uri)

    def experiment(self, name: str) -> str:
        """The id of an experiment, made or brought back if need be."""
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def open_run(self, experiment: str, name: str, tags: Mapping[str, str], key: Mapping[str, str]) -> str:
        """A run that `key` (a part of `tags`) identifies, made if there is none."""
        wanted = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in key.items())
        found = self._client.search_runs([experiment], wanted, max_results=1)
        if found:
            return str(found[0].info.run_id)
        run = self._client.create_run(experiment, tags=_short(tags), run_name=name)
        return str(run.info.run_id)

    def log_params(self, run: str, params: Mapping[str, str]) -> None:
        """Write what never changes."""
        from mlflow.entities import Param

        entries = [Param(key, value[:TAG_LIMIT]) for key, value in params.items()]
        for start in range(0, len(entries), PARAMS_AT_ONCE):
            self._client.log_batch(run, params=entries[start : start + PARAMS_AT_ONCE])

    def log_points(self, run: str, points: Iterable[Point]) -> None:
        """Write metric points; the very same point again is no second one."""
        from mlflow.entities import Metric

        entries = [Metric(p.key, p.value, p.timestamp_ms, p.step) for p in points]
        for start in range(0, len(entries), METRICS_AT_ONCE):
            self._client.log_batch(run, metrics=entries[start : start + METRICS_AT_ONCE])

    def tag(self, run: str, tags: Mapping[str, str]) -> None:
        """Set tags."""
        from mlflow.entities import RunTag

        self._client.log_batch(run, tags=[RunTag(key, value) for key, value in _short(tags).items()])

    def set_status(self, run: str, status: str) -> None:
        """RUNNING, SCHEDULED, FINISHED, FAILED or KILLED."""
        if status in {"RUNNING", "SCHEDULED"}:
            self._client.update_run(run, status=status)
        else:
            self._client.set_terminated(run, status, end_time=int(time.time() * 1000))

    def upload(self, run: str, files: Mapping[str, Path], folder: str) -> None:
        """Log files under their names, wherever their bytes lie."""
        with tempfile.TemporaryDirectory(prefix="arena-upload-") as temporary:
            for name, path in files.items():
                target = Path(temporary) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(path)
            self._client.log_artifacts(run, temporary, folder)

    def upload_text(self, run: str, text: str, name: str) -> None:
        """Log a small file."""
        self._client.log_text(run, text, name)

    def upload_file(self, run: str, path: Path) -> None:
        """Log one file at the top."""
        self._client.log_artifact(run, str(path))

    def register(self, new: NewVersion, key: Mapping[str, str]) -> str:
        """The version number of a checkpoint, registered if `key` (a part of its tags) finds none."""
        self._ensure_model(new.model)
        wanted = [f"name = '{new.model}'", *(f"tags.`{tag}` = '{value}'" for tag, value in key.items())]
        found = self._client.search_model_versions(" and ".join(wanted), max_results=1)
        if found:
            return str(found[0].version)
        version = self._client.create_model_version(
            new.model,
            f"runs:/{new.run_id}/{new.folder}",
            new.run_id,
            tags=_short(new.tags),
            description=new.description,
            await_creation_for=0,
        )
        return str(version.version)

    def aliases(self) -> dict[tuple[str, str], str]:
        """(model, alias) → version, of every model."""
        found: dict[tuple[str, str], str] = {}
        token = None
        while True:
            page = self._client.search_registered_models(max_results=500, page_token=token)
            for model in page:
                found.update({(model.name, alias): str(v) for alias, v in model.aliases.items()})
            token = page.token
            if not token:
                return found

    def set_alias(self, model: str, alias: str, version: str) -> None:
        """Point an alias at a version."""
        self._client.set_registered_model_alias(model, alias, version)

    def _ensure_model(self, name: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(name)
        except MlflowException as problem:
            if problem.error_code != "RESOURCE_ALREADY_EXISTS":
                raise


def is_permanent(problem: Exception) -> bool:
    """Whether MLflow understood and will refuse again, as opposed to being down."""
    return getattr(problem, "error_code", None) in PERMANENT


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value[:TAG_LIMIT] for key, value in tags.items()}
