"""Read what changed, from the repository and from the platform, for a plan to say what is in it.

Nothing is read where nothing differs, so that the usual plan costs nothing more. Files that are too long, or not to
be had, are named as such: a plan without evidence is cautious, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from arena_gitops.evidence.contents import content_of
from arena_gitops.evidence.rows_hash import rows_hash
from arena_gitops.evidence.tables import DATA_BYTES, compared, file_of, same_rows, stored_digest
from arena_gitops.plan.code import FileDiff, equivalent, file_diff, unread
from arena_gitops.plan.cosmetic import CODE, Pair, trained_code, written_code
from arena_gitops.plan.evidence import Evidence
from arena_gitops.plan.rows import DataDiff
from arena_gitops.spec.identity import code_names
from arena_gitops.spec.lifecycle import ROWS_HASH
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState, ObservedState

FILE_BYTES = 256 * 1024
"""Of one source file; longer ones are not compared."""
CODE_BYTES = 16 << 20
"""Of all source files of one plan."""

Read = Callable[[str, int], bytes | None]
"""Digest and limit → content on the other side."""


def gather(desired: DesiredState, observed: ObservedState, read: Read) -> Evidence:
    """Compare the files of every resource whose files differ."""
    reader = _Reader(read)
    code: dict[str, tuple[FileDiff, ...]] = {}
    pairs: set[Pair] = set()
    data: dict[str, DataDiff] = {}
    for address, resource in desired.resources.items():
        document = observed.resources.get(address)
        if document is None:
            continue
        if address.kind in CODE and resource.spec["files"] != document.spec.get("files"):
            code[str(address)] = tuple(reader.shown(resource, document))
            pairs |= set(reader.equivalent(resource, document))
        if address.kind == "dataset" and (found := _rows(resource, document, read)) is not None:
            data[str(address)], pair = found
            pairs |= set() if pair is None else {pair}
    return Evidence(equivalent=frozenset(pairs), code=code, data=data)


def _rows(
    resource: DesiredResource, document: ResourceDocument, read: Read
) -> tuple[DataDiff, Pair | None] | None:
    """What changed in the file of a dataset, and whether both have the same rows; None where nothing did."""
    stored, blob = stored_digest(document), file_of(resource)
    if stored is None or blob is None or stored == blob.digest:
        return None
    form = str(resource.spec.get("format"))
    known = document.spec.get(ROWS_HASH) if form == document.spec.get("format") else None
    if known is not None and (hashed := rows_hash(blob, form)) is not None and hashed[0] == known:
        same = DataDiff(path=blob.path.name, before=hashed[1], after=hashed[1], same_rows=True)
        return same, (stored, blob.digest)
    old = read(stored, DATA_BYTES) if blob.size <= DATA_BYTES else None
    diff, new = compared(resource, old, blob), content_of(blob, DATA_BYTES)
    if not diff.same_rows or form != document.spec.get("format") or old is None or new is None:
        return diff, None
    return diff, (stored, blob.digest) if same_rows(old, new, form) else None


@dataclass(slots=True)
class _Reader:
    read: Read
    left: int = CODE_BYTES
    known: dict[str, bytes | None] = field(default_factory=dict)

    def shown(self, resource: DesiredResource, document: ResourceDocument) -> Iterator[FileDiff]:
        """What reads differently from what was applied last."""
        old = code_names({**resource.spec, **written_code(document.spec)})
        new = code_names(resource.spec)
        paths = _paths(resource, document)
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                yield self._diff(paths[name], old.get(name), new.get(name), resource)

    def equivalent(self, resource: DesiredResource, document: ResourceDocument) -> Iterator[Pair]:
        """What behaves like the code that was trained with."""
        old = code_names({**resource.spec, **trained_code(document.spec)})
        new = code_names(resource.spec)
        if old.keys() != new.keys():
            return
        changed = {(old[name], new[name]): name for name in new if old[name] != new[name]}
        found = {pair: self._diff(name, *pair, resource) for pair, name in changed.items()}
        yield from equivalent(found)

    def _diff(self, path: str, old: str | None, new: str | None, resource: DesiredResource) -> FileDiff:
        blobs = {blob.digest: blob for blob in resource.blobs}
        before = self._content(old) if old is not None else None
        after = content_of(blobs[new], FILE_BYTES) if new in blobs else None
        if (old is not None and before is None) or (new is not None and after is None):
            return unread(path)
        return file_diff(path, before, after)

    def _content(self, digest: str) -> bytes | None:
        if digest not in self.known:
            content = self.read(digest, min(FILE_BYTES, self.left)) if self.left else None
            self.left -= len(content or b"")
            self.known[digest] = content
        return self.known[digest]


def _paths(resource: DesiredResource, document: ResourceDocument) -> dict[str, str]:
    """Name in the fingerprint → path as people know it."""
    found: dict[str, str] = {}
    for spec in (document.spec, resource.spec):
        part = {**resource.spec, **written_code(spec)}
        found |= dict(zip(code_names(part), part["files"], strict=True))
    return found
