"""What came out of it: best checkpoint, test scores, lineage, where to look and where it is served."""

from __future__ import annotations

from collections.abc import Iterable

from arena_gitops.apply.events import Progressed
from arena_gitops.cli import figures
from arena_gitops.spec.job import Lineage, RunStatus
from arena_gitops.spec.wire import DeploymentStatus


def lines(progressed: Progressed) -> list[str]:
    """Lines about everything an apply waited for; why a run failed is the error's own text."""
    told = [line for run in progressed.runs for line in of_run(run, why=not run.state.ended)]
    return told + [of_deployment(name, status) for name, status in progressed.deployments]


def of_run(run: RunStatus, *, why: bool = True) -> list[str]:
    """Lines about one run, with or without its message."""
    reason = f" ({run.reason})" if run.reason else ""
    told = [
        f"experiment/{run.experiment}: {run.state}{reason} at step {run.step}/{run.max_steps}, run {run.run_id}"
    ]
    if why and run.message:
        told.append(f"  {run.message}")
    told.extend(f"  warning: {warning}" for warning in run.warnings)
    if run.best is not None:
        told.append(f"  best checkpoint: {run.best.label}, fitness {figures.score(run.best.fitness)}")
    told.extend(f"  {line}" for line in figures.test_scores(run.test_scores))
    told.extend(_lineage(run.lineage))
    if run.mlflow_url:
        told.append(f"  MLflow: {run.mlflow_url}")
    return told


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
