"""Where people look at what a change is about: pages of MLflow, as the platform gives them."""

from __future__ import annotations

from arena_gitops.plan.model import Change
from arena_gitops.state import ObservedState


def linked(change: Change, observed: ObservedState) -> Change:
    """The change with the page of its present run, or of the model whose checkpoint somebody is to choose."""
    document = observed.resources.get(change.at)
    if document is None:
        return change
    url = document.run.mlflow_url if document.run else None
    if document.deployment is not None and document.deployment.choice is not None:
        url = document.deployment.choice.page
    return change.model_copy(update={"mlflow_url": url}) if url else change
