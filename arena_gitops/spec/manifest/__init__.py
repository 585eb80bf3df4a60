"""The training manifest: every published dialect in, one normal form out.

`parse_manifest` is the only door. `repo` calls it with the document a user wrote, the runner with the normal
form that was stored.
"""

from __future__ import annotations

from arena_gitops.spec.manifest.model import Manifest
from arena_gitops.spec.manifest.parse import (
    ManifestError,
    ManifestNote,
    ManifestProblem,
    ParsedManifest,
    parse_manifest,
)

__all__ = [
    "Manifest",
    "ManifestError",
    "ManifestNote",
    "ManifestProblem",
    "ParsedManifest",
    "parse_manifest",
]
