"""An explanation for a terminal: the two fingerprints side by side, then what moved them."""

from __future__ import annotations

from collections.abc import Iterator

from arena_gitops.plan.explain import Explanation, Part, PartName
from arena_gitops.report import words

PARTS: dict[PartName, str] = {
    "data": "what it is",
    "parents_data": "what it builds on",
    "run": "together: the run",
    "meta": "its metadata",
    "parents_meta": "metadata below",
}
NOTHING = "-"


def render(explanation: Explanation) -> str:
    """The whole explanation, one string that ends with a newline."""
    return "\n".join(line.rstrip() for line in _lines(explanation)) + "\n"


def _lines(told: Explanation) -> Iterator[str]:
    stands = f"v{told.version} on the platform" if told.version is not None else "not on the platform yet"
    yield f"{told.address} ({stands})"
    because = f": {told.message}" if told.message else ""
    yield f"  {words.MARKS[told.action]} {words.VERBS[told.action]}{because}"
    yield ""
    yield f"  {'fingerprint':<22}{'platform':<18}{'repository':<18}"
    yield from (
        _part(part) for part in told.parts if told.address.startswith("experiment/") or part.name != "run"
    )
    if told.fields:
        yield ""
        yield "  fields that differ"
        yield from _fields(told)
    if told.files:
        yield ""
        yield "  files that differ" if told.version is not None else "  files"
        width = max(len(file.path) for file in told.files)
        for file in told.files:
            yield f"    {file.path:<{width}}  {_short(file.old)} → {_short(file.new)}  {file.field}"
    if told.parents:
        yield ""
        yield "  builds on"
        width = max(len(parent.address) for parent in told.parents)
        for parent in told.parents:
            yield f"    {parent.address:<{width}}  {_side(parent.old, parent.new)}"


def _part(part: Part) -> str:
    return (
        f"    {PARTS[part.name]:<20}{_short(part.old):<18}{_short(part.new):<18}{_side(part.old, part.new)}"
    )


def _side(old: str | None, new: str | None) -> str:
    if old is None:
        return "not on the platform yet"
    if new is None:
        return "not in the repository"
    return "differs" if old != new else "same"


def _fields(told: Explanation) -> Iterator[str]:
    path_width = max(len(field.path) for field in told.fields)
    turns = [words.transition(field) for field in told.fields]
    turn_width = max(map(len, turns))
    for field, turn in zip(told.fields, turns, strict=True):
        place = str(field.range) if field.range else ""
        yield f"    {field.path:<{path_width}}  {turn:<{turn_width}}  {field.cls.value}  {place}"


def _short(digest: str | None) -> str:
    return NOTHING if digest is None else f"{digest.removeprefix('sha256:')[:12]}"
