"""The text under a field (its attribute docstring), read from the source when somebody asks.

Schemas and messages want it; ordinary validation does not, and reading source at import would slow every
command.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from functools import cache

from pydantic import BaseModel


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Key as documents write it → its text, inherited fields included."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _own(owner)
    keys = {name: field.alias or name for name, field in model.model_fields.items()}
    return {keys[name]: text for name, text in found.items() if name in keys}


def _own(owner: type) -> dict[str, str]:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    texts: dict[str, str] = {}
    for field, following in itertools.pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            texts[field.target.id] = inspect.cleandoc(following.value.value)
    return texts
