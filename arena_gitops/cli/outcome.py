"""What came out of it: best checkpoint, test scores, lineage, where to look and where it is served."""

from __future__ import annotations

from collections.abc import Iterable

from arena_gitops.cli import figures
from arena_gitops.spec.job import Lineage, RunStatus
from arena_gitops.spec.wire import DeploymentStatus


def of_run(run: RunStatus) -> list[str]:
    """Lines about one run."""
    reason = f" ({run.reason})" if run.reason else ""
    lines = [
        f"experiment/{run.experiment}: {run.state}{reason} at step {run.step}/{run.max_steps}, run {run.run_id}"
    ]
    if run.message:
        lines.append(f"  {run.message}")
    if run.best is not None:
        lines.append(f"  best checkpoint: {run.best.label}, fitness {figures.score(run.best.fitness)}")
    lines.extend(f"  {line}" for line in figures.test_scores(run.test_scores))
    lines.extend(_lineage(run.lineage))
    if run.mlflow_url:
        lines.append(f"  MLflow: {run.mlflow_url}")
    return lines


def _lineage(records: Iterable[Lineage]) -> list[str]:
    """Only places where something happened: clones and mutations."""
    told = [r for r in records if r.parent != r.member or r.mutation is not None]
    return ["  lineage:", *(f"    {figures.lineage(record)}" for record in told)] if told else []


def of_deployment(name: str, status: DeploymentStatus) -> str:
    """One line about a deployment."""
    served = f" {status.checkpoint} of run {status.run_id}" if status.checkpoint and status.run_id else ""
    revision = f", revision {status.revision}" if status.revision else ""
    where = f" at {status.url}" if status.url else ""
    because = f" ({status.message})" if status.message else ""
    return f"deployment/{name}: {status.state}{served}{revision}{where}{because}"
