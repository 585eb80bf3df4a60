"""A manifest for a pull request's preview: the same work, cut short.

`max_steps` is a budget and no part of what is trained, so a preview of unchanged content is the run of `main`, and
what a preview has begun `main` goes on with. Passes over the rows have no such ceiling and are counted in steps.
"""

from __future__ import annotations

from arena_gitops.spec.manifest.model import Manifest


def shortened(manifest: Manifest, most: int) -> Manifest:
    """The manifest with at most `most` steps; itself where it asks for no more."""
    training = manifest.training
    if training.num_epochs is None and training.max_steps <= most:
        return manifest
    limits = {
        "max_steps": min(training.max_steps, most),
        "evo_steps": min(training.evo_steps, most),
        "num_epochs": None,
        "evo_epochs": None,
    }
    return manifest.model_copy(update={"training": training.model_copy(update=limits)})
