"""From a catalog to desired resources: specs in the shape the platform stores, fingerprints, files to upload."""

from __future__ import annotations

from arena_gitops.repo import experiments, references
from arena_gitops.repo.catalog import Catalog
from arena_gitops.repo.resolution import Resolution
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredResource


def resolve(catalog: Catalog) -> dict[Address, DesiredResource]:
    """Resolve everything that can be; what cannot be has its problems in the catalog."""
    bad = references.check(catalog)
    resolution = Resolution(catalog)
    for kind in ("project", "dataset", "environment", "reward"):
        for entry in catalog.of(kind):
            resolution.resolve(entry)
    composed = {entry.address: experiments.composed(catalog, entry) for entry in catalog.of("experiment")}
    for entry in references.in_order(catalog):
        found = composed[entry.address]
        if found is not None and entry.address not in bad:
            made = experiments.ExperimentBuilder(resolution, entry, *found).build()
            if made is not None:
                resolution.built[entry.address] = made
    for entry in catalog.of("deployment"):
        if entry.address not in bad:
            resolution.resolve(entry)
    return resolution.built
