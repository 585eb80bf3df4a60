"""YAML 1.2 with places: every value and every key keeps its line and column.

The only importer of ruamel. Its C scanner yields events; the composer below turns them into plain Python data
and refuses what a configuration file must not do: duplicate keys, tags, keys that are not text, aliases to
their own ancestors, expansion bombs, numbers JSON cannot hold. Problems do not stop the reading where it can
go on, so one pass reports them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from _ruamel_yaml import (  # type: ignore[import-not-found]  # the C extension has no stubs
    AliasEvent,
    CParser,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from arena_gitops.errors import Diagnostic, Severity, Span
from arena_gitops.repo.document import Document, Path, Place, Reading
from arena_gitops.repo.scalars import Scalar, ScalarError, looks_like_date, resolve

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_NODES = 50_000

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_CONTROL = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters YAML does not allow."""


def read(data: bytes, file: str) -> Reading:
    """Read a file's bytes; `file` is the name to use in spans.

    A syntax error ends the reading at its place, anything else is collected. Documents with problems are
    still returned as far as they were understood.
    """
    if len(data) > MAX_BYTES:
        return _refused(
            file, f"{len(data):,} bytes are too many for a YAML file; the limit is 1 MiB", "file-too-large"
        )
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _refused(file, "this file is not UTF-8 text", "not-utf8", line=line)
    composer = _Composer(data, file)
    try:
        composer.run()
    except MarkedYAMLError as error:
        composer.problems.append(_syntax(error, data, file))
    except YAMLError as error:
        composer.problems.append(_control_character(error, data, file))
    except _StopReadingError:
        pass  # its problem is already in the list
    if not composer.problems and all(doc.value is None for doc in composer.documents):
        return _refused(
            file, "this file is empty", "empty-file", hint="Write a resource in it, or delete it."
        )
    return Reading(
        tuple(doc for doc in composer.documents if doc.value is not None), tuple(composer.problems)
    )


class _StopReadingError(Exception):
    """A limit was passed; going on would cost more than it tells."""


@dataclass(slots=True)
class _Anchor:
    value: Any
    nodes: int
    open: bool = True


@dataclass(slots=True)
class _Composer:
    """Turns one file's events into documents."""

    data: bytes
    file: str
    documents: list[Document] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    next: Callable[[], Any] = field(init=False)
    places: dict[Path, Place] = field(init=False)
    keys: dict[Path, Place] = field(init=False)
    texts: dict[Path, str] = field(init=False)
    anchors: dict[str, _Anchor] = field(init=False)
    nodes: int = 0

    def run(self) -> None:
        self.next = CParser(self.data).get_event
        event = self.next()
        while type(event) is not StreamEndEvent:
            if type(event) is DocumentStartEvent:
                self.document()
            event = self.next()

    def document(self) -> None:
        self.places, self.keys, self.texts, self.anchors = {}, {}, {}, {}
        event = self.next()
        start = _place(event)
        value = self.node(event, (), 0)
        places, keys = _alike(tuple(self.places.items())), _alike(tuple(self.keys.items()))
        self.documents.append(Document(self.file, value, start, places, keys, self.texts))
        if type(self.next()) is not DocumentEndEvent:
            raise AssertionError("a document holds one node")

    def report(self, message: str, code: str, place: Place, hint: str = "") -> None:
        self.problems.append(Diagnostic(message, code, Span(self.file, *place), hint))

    def tag(self, tag: str, place: Place) -> None:
        written = tag.replace("tag:yaml.org,2002:", "!!")
        self.report(f"the tag {written} is not allowed", "yaml-tag", place, "Write the plain value.")

    def stop(self, message: str, code: str, place: Place, hint: str = "") -> _StopReadingError:
        self.report(message, code, place, hint)
        return _StopReadingError()

    def count(self, nodes: int, place: Place) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self.stop(f"more than {MAX_NODES:,} values, aliases expanded", "too-many-nodes", place)

    def node(self, event: Any, path: Path, depth: int) -> Any:
        place = _place(event)
        self.places[path] = place
        kind = type(event)
        if kind is AliasEvent:
            return self.alias(event, depth, place)
        self.count(1, place)
        if event.tag is not None:
            self.tag(event.tag, place)
        if event.anchor is None:
            return self.content(kind, event, path, depth, place)
        anchor = self.anchors[event.anchor] = _Anchor(None, self.nodes)
        anchor.value = self.content(kind, event, path, depth, place)
        anchor.nodes, anchor.open = self.nodes - anchor.nodes + 1, False
        return anchor.value

    def content(self, kind: type, event: Any, path: Path, depth: int, place: Place) -> Any:
        if kind is ScalarEvent:
            return self.scalar(event, path, place)
        if depth >= MAX_DEPTH:
            raise self.stop(_TOO_DEEP, "too-deep", place)
        return self.sequence(path, depth) if kind is SequenceStartEvent else self.mapping(path, depth)

    def alias(self, event: Any, depth: int, place: Place) -> Any:
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            self.report(f"*{event.anchor} refers to no anchor above it", "unknown-alias", place)
            return None
        if anchor.open:
            self.report(f"*{event.anchor} refers to something it is part of", "alias-cycle", place)
            return None
        self.count(anchor.nodes, place)
        if depth + _height(anchor.value) > MAX_DEPTH:
            raise self.stop(_TOO_DEEP, "too-deep", place)
        return anchor.value

    def scalar(self, event: Any, path: Path, place: Place) -> Scalar:
        text: str = event.value
        if not event.implicit[0]:
            return text
        try:
            value = resolve(text)
        except ScalarError as error:
            self.report(str(error), "not-finite", place)
            return None
        if type(value) is not str:
            self.texts[path] = text
        elif text[0].isdigit() and looks_like_date(text):
            self.problems.append(_date_note(text, Span(self.file, *place)))
        return value

    def sequence(self, path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while type(event := self.next()) is not SequenceEndEvent:
            items.append(self.node(event, (*path, len(items)), depth + 1))
        return items

    def mapping(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merge: tuple[Any, Place] | None = None
        while type(event := self.next()) is not MappingEndEvent:
            place = _place(event)
            key = self.key(event, path, depth, place)
            if key == "<<" and event.implicit[0]:
                if merge is not None:
                    self.duplicate("<<", merge[1], place)
                merge = self.node(self.next(), (*path, "<<"), depth + 1), place
                continue
            here = _shared((*path, key))
            if key in found:
                self.duplicate(key, self.keys[here], place)
                here = (*path, f"{key} (again)")  # so that the first one keeps its places
            self.keys[here] = place
            value = self.node(self.next(), here, depth + 1)
            found.setdefault(key, value)
        if merge is not None:
            self.merge(found, merge[0], path, merge[1])
        return found

    def key(self, event: Any, path: Path, depth: int, place: Place) -> str:
        if type(event) is not ScalarEvent:
            self.node(event, (*path, "?"), depth + 1)
            self.report("a key must be text", "key-not-text", place)
            return f"?{place[0]}:{place[1]}"
        self.count(1, place)
        if event.tag is not None:
            self.tag(event.tag, place)
        text: str = event.value
        if event.implicit[0] and text != "<<" and not _is_text(text):
            self.report(
                f"the key {text or 'null'} is not text", "key-not-text", place, f'Quote it: "{text}".'
            )
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchor(text, 1, open=False)
        return text

    def duplicate(self, key: str, earlier: Place, place: Place) -> None:
        first = Span(self.file, *earlier)
        self.report(
            f"the key {key!r} is written twice; first at {first}", "duplicate-key", place, "Keep one of them."
        )

    def merge(self, found: dict[str, Any], value: Any, path: Path, place: Place) -> None:
        sources = value if isinstance(value, list) else [value]
        for source in sources:
            if not isinstance(source, dict):
                self.report("<< takes a mapping or a list of mappings", "bad-merge", place)
                continue
            for key, item in source.items():
                if key not in found:
                    found[key] = item
                    self.keys[*path, key] = self.places[*path, key] = place
                    self.count(1, place)


def _place(event: Any) -> Place:
    mark = event.start_mark
    return _shared((mark.line + 1, mark.column + 1))


@lru_cache(maxsize=1 << 14)
def _shared(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """One object for equal paths and places: a thousand files of one kind have the same ones."""
    return value


@lru_cache(maxsize=1 << 8)
def _alike(items: tuple[tuple[Path, Place], ...]) -> dict[Path, Place]:
    """One mapping for files that say other things in the same places, as those of a sweep do."""
    return dict(items)


@lru_cache(maxsize=1 << 12)
def _is_text(text: str) -> bool:
    try:
        return isinstance(resolve(text), str)
    except ScalarError:
        return False


def _date_note(text: str, span: Span) -> Diagnostic:
    return Diagnostic(
        f"{text} is read as text, other YAML readers make it a date",
        "unquoted-date",
        span,
        f'Quote it: "{text}".',
        Severity.NOTE,
    )


def _refused(file: str, message: str, code: str, *, line: int = 1, hint: str = "") -> Reading:
    return Reading((), (Diagnostic(message, code, Span(file, line, 1), hint),))


def _height(value: Any) -> int:
    """How many levels of lists and mappings a value has."""
    if isinstance(value, dict):
        return 1 + max(map(_height, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_height, value), default=0)
    return 0


def _control_character(error: YAMLError, data: bytes, file: str) -> Diagnostic:
    text = data.decode("utf-8-sig")
    match = _CONTROL.search(text)
    if match is None:
        return Diagnostic(str(error).splitlines()[0], "yaml-syntax", Span(file))
    line = text.count("\n", 0, match.start()) + 1
    column = match.start() - text.rfind("\n", 0, match.start())
    message = f"the control character U+{ord(match[0]):04X} is not allowed"
    return Diagnostic(
        message, "yaml-syntax", Span(file, line, column), "Remove it, or write an escape in quotes."
    )


def _syntax(error: MarkedYAMLError, data: bytes, file: str) -> Diagnostic:
    lines = data.decode("utf-8-sig").splitlines()
    mark = error.problem_mark
    at_end = mark is None or mark.line >= len(lines)
    if error.context_mark is not None and at_end:
        mark = error.context_mark  # what is missing at the end of a file was opened here
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    text = lines[line - 1] if line <= len(lines) else ""
    if "\t" in text[: len(text) - len(text.lstrip())]:
        tab = Span(file, line, text.index("\t") + 1)
        return Diagnostic("a tab in the indentation", "yaml-tab", tab, "YAML is indented with spaces only.")
    context = f" {error.context}" if error.context else ""
    return Diagnostic(f"{error.problem}{context}", "yaml-syntax", Span(file, line, column))
