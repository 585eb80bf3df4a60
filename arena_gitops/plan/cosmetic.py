"""Files that were only written differently: comments and layout of code, quotes of a CSV. They train nothing anew.

Code is parsed by the same interpreter on both sides and the trees compared; no digest of a tree is ever stored, because
other versions of Python make other trees. Of a dataset every row is compared. What cannot be compared counts as changed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.identity import code_names
from arena_gitops.spec.lifecycle import BEHAVES_AS, ROWS_HASH, data_part
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource

Pair = tuple[str, str]
"""Digests of two files, an old and a new one, that behave the same."""
CODE = frozenset({"reward", "environment"})
REWRITTEN = CODE | {"dataset"}
"""Kinds whose file may be written differently and mean the same."""
_PLACE = frozenset({"files", "entry"})
_ROWS = frozenset({"digest", "format"})
_READS_DOCSTRINGS = ("__doc__", "getdoc", "doctest", "inspect")


def same_behaviour(old: bytes, new: bytes) -> bool:
    """Whether two Python files differ in comments, docstrings and layout alone."""
    if old == new:
        return True
    readers = any(name.encode() in text for name in _READS_DOCSTRINGS for text in (old, new))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before, after = (_tree(text, docstrings=readers) for text in (old, new))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return before == after


def trained_content(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored fingerprint is that of: code, or the file of a dataset."""
    return trained_code(spec) if kind in CODE else trained_rows(spec)


def trained_rows(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The file that a dataset was trained from: its digest and its format."""
    return _only(spec.get(BEHAVES_AS) or spec, _ROWS)


def trained_code(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The code that a stored fingerprint is that of: files, and the entry of a reward."""
    return written_code(spec.get(BEHAVES_AS) or spec)


def written_code(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The code as it was written last: files, and the entry of a reward."""
    return _only(spec, _PLACE)


def settled(
    resource: DesiredResource, document: ResourceDocument, equivalent: frozenset[Pair]
) -> DesiredResource:
    """The resource under the fingerprint that it was trained with, if it still means the same."""
    kind = resource.address.kind
    if kind in CODE:
        return settled_code(resource, document, equivalent)
    return settled_rows(resource, document, equivalent) if kind in REWRITTEN else resource


def settled_rows(
    resource: DesiredResource, document: ResourceDocument, equivalent: frozenset[Pair]
) -> DesiredResource:
    """The dataset under the fingerprint that its rows were trained with, if they are still the same."""
    new, stored = (spec.get("digest") for spec in (resource.spec, document.spec))
    if new is None or (new != stored and (stored, new) not in equivalent):
        return resource
    if _beside(resource, _ROWS) != _beside(document, _ROWS):
        return resource
    trained = trained_rows(document.spec)
    spec = dict(resource.spec)
    if _only(spec, _ROWS) != trained:
        spec[BEHAVES_AS] = trained
    if ROWS_HASH in document.spec:
        spec[ROWS_HASH] = document.spec[ROWS_HASH]
    return _kept(resource, document, spec)


def settled_code(
    resource: DesiredResource, document: ResourceDocument, equivalent: frozenset[Pair]
) -> DesiredResource:
    """The resource under the fingerprint that its code was trained with, if it still behaves the same."""
    trained, stored = trained_code(document.spec), written_code(document.spec)
    as_stored = code_names(resource.spec) == code_names({**resource.spec, **stored})
    if not as_stored and not _equivalent(resource.spec, {**resource.spec, **trained}, equivalent):
        return resource
    if _beside(resource, _PLACE) != _beside(document, _PLACE):
        return resource
    spec = dict(resource.spec)
    if code_names(spec) != code_names({**spec, **trained}):
        spec[BEHAVES_AS] = trained
    return _kept(resource, document, spec)


def _kept(resource: DesiredResource, document: ResourceDocument, spec: dict[str, Any]) -> DesiredResource:
    new = resource.fingerprint
    kept = Fingerprint(
        data=document.fingerprint.data,
        meta=new.meta,
        parents_data=new.parents_data,
        parents_meta=new.parents_meta,
    )
    return replace(resource, spec=spec, fingerprint=kept)


def _equivalent(new: Mapping[str, Any], old: Mapping[str, Any], equivalent: frozenset[Pair]) -> bool:
    before, after = code_names(old), code_names(new)
    if before.keys() != after.keys():
        return False
    return all(before[name] == after[name] or (before[name], after[name]) in equivalent for name in after)


def _beside(resource: DesiredResource | ResourceDocument, content: frozenset[str]) -> dict[str, Any]:
    """What else would be trained with: everything semantic but the content itself."""
    kind = resource.kind if isinstance(resource, ResourceDocument) else resource.address.kind
    return {key: value for key, value in data_part(kind, resource.spec).items() if key not in content}


def _only(spec: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: spec[key] for key in sorted(keys) if key in spec}


def _tree(text: bytes, *, docstrings: bool) -> str:
    tree = ast.parse(text)
    if not docstrings:
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                _drop_docstring(node)
    return ast.dump(tree)


def _drop_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            node.body = rest
        case _:
            pass
