"""Code that was only written differently: comments, docstrings, layout. It trains nothing anew.

Both texts are parsed by the same interpreter and their trees compared; no digest of a tree is ever stored, because
other versions of Python make other trees. What cannot be compared counts as changed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.identity import code_names
from arena_gitops.spec.lifecycle import BEHAVES_AS, data_part
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource

Pair = tuple[str, str]
"""Digests of two files, an old and a new one, that behave the same."""
CODE = frozenset({"reward", "environment"})
_PLACE = frozenset({"files", "entry"})
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


def trained_code(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The code that a stored fingerprint is that of: files, and the entry of a reward."""
    return written_code(spec.get(BEHAVES_AS) or spec)


def written_code(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The code as it was written last: files, and the entry of a reward."""
    return {key: spec[key] for key in sorted(_PLACE) if key in spec}


def settled_code(
    resource: DesiredResource, document: ResourceDocument, equivalent: frozenset[Pair]
) -> DesiredResource:
    """The resource under the fingerprint that its code was trained with, if it still behaves the same."""
    trained, stored = trained_code(document.spec), written_code(document.spec)
    as_stored = code_names(resource.spec) == code_names({**resource.spec, **stored})
    if not as_stored and not _equivalent(resource.spec, {**resource.spec, **trained}, equivalent):
        return resource
    if _beside_code(resource) != _beside_code(document):
        return resource
    spec = dict(resource.spec)
    if code_names(spec) != code_names({**spec, **trained}):
        spec[BEHAVES_AS] = trained
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


def _beside_code(resource: DesiredResource | ResourceDocument) -> dict[str, Any]:
    kind = resource.kind if isinstance(resource, ResourceDocument) else resource.address.kind
    return {key: value for key, value in data_part(kind, resource.spec).items() if key not in _PLACE}


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
