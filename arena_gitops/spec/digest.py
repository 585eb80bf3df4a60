"""Canonical JSON, sha256, and the four-part fingerprint.

Floats are written by `repr`, so `1e-5` and `0.00001` are one value; keys are sorted; NaN and infinity are
refused. Nothing here reads a file or a clock.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from arena_gitops.spec.resource import Frozen

SCHEMA_MAJOR = 1
"""Part of every run fingerprint; raised only when old runs can no longer be compared with new ones."""


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; raises ValueError on NaN or infinity."""
    return _ENCODER.encode(value).encode()


def sha256_bytes(data: bytes) -> str:
    """`sha256:` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


_DIGEST = re.compile(rb"sha256:[0-9a-f]{64}(?![0-9a-f])")


def digests_in(value: Any) -> frozenset[str]:
    """Every digest that a JSON value names, wherever it stands."""
    return frozenset(found.decode() for found in _DIGEST.findall(canonical_json(value)))


def sha256_json(value: Any) -> str:
    """Digest of a value's canonical JSON."""
    return sha256_bytes(canonical_json(value))


class Fingerprint(Frozen):
    """What a resource is, in four hashes, so that a change can be classified without its text.

    `data` is what would be trained or served, `meta` what people read; the `parents_*` pair is the same over
    the resources it refers to.
    """

    data: str
    meta: str
    parents_data: str
    parents_meta: str

    @property
    def run(self) -> str:
        """Identity of the work: equal run fingerprints are one run."""
        return _digest_of(SCHEMA_MAJOR, self.data, self.parents_data)


def fingerprint(data: Any, meta: Any, parents: Iterable[Fingerprint] = ()) -> Fingerprint:
    """Fingerprint a resource from its data part, its metadata part and its parents' fingerprints."""
    parents = tuple(parents)
    return Fingerprint(
        data=sha256_json(data),
        meta=sha256_json(meta),
        parents_data=_digest_of(*sorted(_digest_of(p.data, p.parents_data) for p in parents)),
        parents_meta=_digest_of(*sorted(_digest_of(p.meta, p.parents_meta) for p in parents)),
    )


@lru_cache(maxsize=1 << 12)
def _digest_of(*parts: int | str) -> str:
    """Digest of a short list; a few parents have ten thousand children."""
    return sha256_json(list(parts))
