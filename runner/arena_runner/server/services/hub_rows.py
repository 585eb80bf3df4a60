"""Which blob the rows of a dataset of the hub have become, and which runs wait for it; `imports` brings them."""

from __future__ import annotations

from sqlalchemy.orm import Session

from arena_gitops.spec.job import DatasetInput
from arena_gitops.spec.wire import Owner
from arena_runner.server.store.imports import ImportRow
from arena_runner.server.store.tables import ResourceRow, RunRow

PENDING, READY, FAILED = "pending", "ready", "failed"
NAMESPACE = Owner(stack="").namespace
"""Where commands make things."""
KIND = "dataset/"
WAITS = "waits for its rows, which are on their way from the hub"


def find(session: Session, name: str) -> ImportRow | None:
    """How the rows of a dataset stand; None when no command took it from the hub."""
    return session.get(ImportRow, (NAMESPACE, name))


def job_input(row: ResourceRow) -> DatasetInput:
    """A stored dataset as jobs receive it."""
    return DatasetInput.model_validate({k: v for k, v in row.spec.items() if k in DatasetInput.model_fields})


def pinned(session: Session, source: DatasetInput) -> DatasetInput:
    """The dataset with the blob its rows have become, if they have."""
    row = _row_of(session, source)
    if row is None or row.state != READY:
        return source
    return DatasetInput.model_validate(
        {**source.model_dump(mode="json"), "digest": row.digest, "format": row.format}
    )


def pin(session: Session, run: RunRow) -> None:
    """Tie a run to the rows as they are here now."""
    dataset = run.inputs.get("dataset")
    if dataset is not None:
        source = pinned(session, DatasetInput.model_validate(dataset))
        run.inputs = {**run.inputs, "dataset": source.model_dump(mode="json")}


def obstacle(session: Session, run: RunRow) -> str | None:
    """What a run waits for whose rows are still on their way; None when they are not."""
    dataset = run.inputs.get("dataset")
    row = _row_of(session, DatasetInput.model_validate(dataset)) if dataset else None
    return WAITS if row is not None and row.state == PENDING else None


def _row_of(session: Session, source: DatasetInput) -> ImportRow | None:
    if source.hf is None or source.digest is not None or not source.address.startswith(KIND):
        return None
    row = find(session, source.address.removeprefix(KIND))
    return row if row is not None and row.hub == source.hf.model_dump(mode="json") else None
