"""One object for equal parts: thousands of experiments differ in a line each, and hold the rest in common."""

from __future__ import annotations

from typing import Any

CANDIDATES = 24
"""Values of one name that are remembered; what has more is not common to many."""
PATIENCE = 64
"""Values in a row that were all new: nobody shares this one."""


class Alike:
    """Parts by name; whoever takes one must not change it."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[Any, str]]] = {}
        self._missed: dict[str, int] = {}

    def shared(self, whole: dict[str, Any], at: str = "") -> dict[str, Any]:
        """The same mapping, its parts being those of an earlier one where they are equal."""
        for name, part in whole.items():
            if part and type(part) in {dict, list}:
                whole[name] = self.one(at + name, part)
        return whole

    def one(self, name: str, part: Any) -> Any:
        """The first of the parts of this name that is the same to the letter (`1` is not `1.0`), or it itself."""
        if self._missed.get(name, 0) > PATIENCE:
            return part
        known = self._known.setdefault(name, [])
        for number, (same, text) in enumerate(known):
            if same is part or (same == part and text == repr(part)):
                if number:
                    known.insert(0, known.pop(number))
                self._missed[name] = 0
                return same
        self._missed[name] = self._missed.get(name, 0) + 1
        known.insert(0, (part, repr(part)))
        del known[CANDIDATES:]
        return part
