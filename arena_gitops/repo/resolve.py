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
    ordered = references.in_order(catalog)
    for entry in ordered:  # one by one: a manifest is let go of before the next is read
        found = experiments.composed(catalog, entry)
        if found is not None and entry.address not in bad:
            made = experiments.ExperimentBuilder(resolution, entry, *found).build()
            if made is not None:
                resolution.built[entry.address] = made
    left_out = {entry.address for entry in catalog.of("experiment")} - {entry.address for entry in ordered}
    for address in sorted(left_out):  # on a cycle: their other problems are told all the same
        experiments.composed(catalog, catalog.entries[address])
    for entry in catalog.of("deployment"):
        if entry.address not in bad:
            resolution.resolve(entry)
    return resolution.built
