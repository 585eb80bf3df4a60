"""A plan for a terminal: what happens, why, where it was written, and what it costs.

Lines are made of styled pieces; whether styles become colour is one flag, so that a pipe gets the same text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from arena_gitops.plan.model import Action, Change, CheckStatus, FieldChange, Plan
from arena_gitops.report import diffs, words
from arena_gitops.report.untrusted import plain
from arena_gitops.report.wrapping import NARROWEST, rows
from arena_gitops.spec.resource import MAIN, is_preview

_STYLES: dict[str, str] = {"green": "32", "yellow": "33", "red": "31", "cyan": "36", "bold": "1", "dim": "2"}

_COLOURS: dict[Action, str] = {
    Action.CREATE: "green",
    Action.UPDATE: "yellow",
    Action.NEW_VERSION: "yellow",
    Action.PROMOTE: "yellow",
    Action.RESUME: "yellow",
    Action.CAP: "yellow",
    Action.MIGRATE: "yellow",
    Action.REUSE: "cyan",
    Action.MOVE: "cyan",
    Action.IMPORT: "cyan",
    Action.RETIRE: "red",
    Action.DESTROY: "red",
    Action.PENDING: "cyan",
    Action.HELD: "yellow",
    Action.STALE: "yellow",
    Action.BLOCKED: "red",
    Action.NOOP: "dim",
}

OFFLINE = (
    "No platform was asked: every run is taken as completed; prices, reusable results and what was changed by hand "
    "are not known."
)
INDENT = " " * 6
MOST_UNCHANGED = 20
"""Of what changes nothing, how many are told one by one; the rest is counted by what it is doing."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of one style."""

    text: str
    style: str = ""

    def harmless(self) -> Piece:
        """The same without ANSI codes of whoever wrote it; one line, whatever it holds."""
        return self if self.text.isprintable() else Piece(plain(self.text), self.style)

    def render(self, *, colour: bool) -> str:
        """With ANSI codes of ours."""
        code = _STYLES.get(self.style) if colour else None
        return f"\x1b[{code}m{self.text}\x1b[0m" if code and self.text else self.text


Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Widths:
    """Columns of the heading lines."""

    address: int
    verb: int


def render(plan: Plan, *, colour: bool = False, width: int | None = None) -> str:
    """The whole plan, one string that ends with a newline; with the width of a terminal, fitted into it."""
    lines = (row for line in plan_lines(plan) for row in _fitted(line, width))
    return "\n".join("".join(piece.render(colour=colour) for piece in line).rstrip() for line in lines) + "\n"


def _fitted(line: Line, width: int | None) -> Iterator[Line]:
    """The rows of a line; each keeps the styles of its pieces."""
    line = tuple(piece.harmless() for piece in line)
    text = "".join(piece.text for piece in line).rstrip()
    if width is None or width < NARROWEST or len(text) <= width:
        yield line
        return
    for start, end, before in rows(text, width):
        yield (Piece(" " * before), *_between(line, start, end))


def _between(line: Line, start: int, end: int) -> Iterator[Piece]:
    """The part of a line between two places."""
    at = 0
    for piece in line:
        part = piece.text[max(start - at, 0) : max(end - at, 0)]
        at += len(piece.text)
        if part:
            yield Piece(part, piece.style)


def plan_lines(plan: Plan) -> Iterator[Line]:
    """Heading, changes, remarks, summary."""
    yield _heading(plan)
    yield ()
    yield from _changes([change for change in plan.changes if change.action is not Action.NOOP])
    yield from _unchanged(change for change in plan.changes if change.action is Action.NOOP)
    yield from _remarks(plan)
    if not plan.has_changes:
        yield (Piece(settled(plan), "green"),)
    if not plan.applyable:
        yield (Piece("This plan is blocked: nothing of it will be applied.", "red"),)
    yield (Piece(words.summary_line(plan), "bold"),)
    yield from ((Piece(line, "dim"),) for line in words.money_lines(plan))
    if plan.unmanaged:
        yield (Piece(words.unmanaged(plan.unmanaged), "dim"),)
    if not plan.complete:
        rest = "stays as it is" if plan.mode == "destroy" else "was not looked at, and nothing is removed"
        yield (Piece(f"A part of the stack: the rest {rest}.", "dim"),)
    if plan.mode == "offline":
        yield (Piece(OFFLINE, "dim"),)
    elif plan.has_changes:
        yield (Piece(f"Plan id: {plan.plan_id}", "dim"),)


def settled(plan: Plan) -> str:
    """What is said where there is nothing to do."""
    if plan.mode == "destroy":
        return "Nothing to destroy: the platform has none of it."
    if any(change.action is not Action.NOOP or change.fields for change in plan.changes):
        return "No changes to make."
    same = f"{plan.against} declares the same" if plan.against else "the platform is as the repository says"
    return f"No changes: {same}."


def _heading(plan: Plan) -> Line:
    place = f"stack {plan.stack}" + ("" if plan.namespace == MAIN else f", namespace {plan.namespace}")
    place += " (preview)" if is_preview(plan.namespace) else ""
    part = f", only {' '.join(plan.scope.select)}" if plan.scope.select else ""
    commit = f" at {plan.base.commit[:12]}" if plan.base.commit else ""
    dirty = " with uncommitted changes" if plan.base.dirty else ""
    offline = f", offline against {plan.against}" if plan.against else ""
    what = "Plan to destroy on" if plan.mode == "destroy" else "Plan for"
    return Piece(f"{what} {plan.target}{offline}", "bold"), Piece(f" ({place}{commit}{dirty}{part})", "dim")


def _changes(changes: list[Change]) -> Iterator[Line]:
    """One paragraph per change; those of a single line stand together."""
    widths = Widths(
        max((len(change.address) for change in changes), default=0),
        max((len(words.verb(change)) for change in changes), default=0),
    )
    separated, alike = True, False
    shown, left = _few(changes)
    paragraphs = [_change(change, widths) for change in shown]
    for (heading, *details), following in zip_longest(paragraphs, paragraphs[1:], fillvalue=[()]):
        if details and not (separated or alike):
            yield ()
        yield heading
        alike = bool(details) and details == list(following[1:])
        if alike:  # said once, below the last of them
            continue
        yield from details
        separated = bool(details)
        if details:
            yield ()
    for (action, message), count in left.items():
        why = f": {message}" if action is Action.BLOCKED else ""
        yield (Piece(f"    … and {count:,} more {words.VERBS[action]}{why}", _COLOURS[action]),)
    if left or not separated:
        yield ()


def _few(changes: list[Change]) -> tuple[list[Change], Counter[tuple[Action, str]]]:
    """What is told, and what is only counted: of states that change nothing, many with one reason are told by some."""
    seen: Counter[tuple[Action, str]] = Counter()
    shown, left = [], Counter[tuple[Action, str]]()
    for change in changes:
        why = change.action, change.message if change.action is Action.BLOCKED else ""
        seen[why] += 1
        if change.action.acts or seen[why] <= MOST_UNCHANGED:
            shown.append(change)
        else:
            left[why] += 1
    return shown, left


def _change(change: Change, widths: Widths) -> list[Line]:
    """The heading, and what is below it."""
    return list(_lines_of(change, widths))


def _lines_of(change: Change, widths: Widths) -> Iterator[Line]:
    colour = _COLOURS[change.action]
    yield (
        Piece("  "),
        Piece(words.MARKS[change.action], colour),
        Piece(" "),
        Piece(f"{change.address:<{widths.address}}", "bold"),
        Piece(f"  {words.verb(change):<{widths.verb}}", colour),
        Piece(f"  {change.message}" if change.message else ""),
        Piece(f"  {change.range}" if change.range and not words.told(change) else "", "dim"),
    )
    if change.interrupts and change.action.acts and change.action is not Action.MIGRATE:
        yield (Piece(INDENT), Piece("stops the run that is running now", "red"))
    yield from _fields(words.told(change))
    for line, style in (*diffs.scores(change), *diffs.data(change), *diffs.code(change)):
        yield (Piece(INDENT), Piece(line, style))
    for note in change.notes:
        yield (Piece(INDENT), Piece(note))
    if cost := words.cost_line(change):
        yield (Piece(INDENT), Piece(f"cost: {cost}"))
    if fit := words.fit_line(change):
        yield (
            Piece(INDENT),
            Piece(f"memory: {fit}", "yellow" if change.fit and change.fit.verdict != "ok" else ""),
        )
    if change.unknown:
        known_later = ", ".join(words.UNKNOWN.get(code, code) for code in change.unknown)
        yield (Piece(INDENT), Piece(f"known after apply: {known_later}", "dim"))


def _fields(fields: tuple[FieldChange, ...]) -> Iterator[Line]:
    path_width = max((len(field.path) for field in fields), default=0)
    turns = [words.transition(field) for field in fields]
    turn_width = max(map(len, turns), default=0)
    class_width = max((len(field.cls.value) for field in fields), default=0)
    for field, turn in zip(fields, turns, strict=True):
        yield (
            Piece(INDENT),
            Piece(f"{field.path:<{path_width}}  "),
            Piece(f"{turn:<{turn_width}}  ", _COLOURS[field.action]),
            Piece(f"{field.cls.value:<{class_width}}  ", "dim"),
            Piece(str(field.range) if field.range else "", "dim"),
        )


def _unchanged(changes: Iterable[Change]) -> Iterator[Line]:
    """Unchanged resources with something to say: a run in flight, a promotion that is coming."""
    told = list(changes)
    shown = told if len(told) <= MOST_UNCHANGED + 1 else told[:MOST_UNCHANGED]
    width = max((len(change.address) for change in shown), default=0)
    for change in shown:
        yield (Piece(f"    {change.address:<{width}}  {change.message}", "dim"),)
    if left := told[len(shown) :]:
        kinds = Counter(re.split(r"[,:;]", change.message)[0] for change in left).most_common()
        counts = ", ".join(f"{count:,} {what}" for what, count in kinds[:4])
        rest = f", {sum(count for _, count in kinds[4:]):,} others" if kinds[4:] else ""
        yield (Piece(f"    … and {len(left):,} more: {counts}{rest} (arena status)", "dim"),)
    if told:
        yield ()


def _remarks(plan: Plan) -> Iterator[Line]:
    """What is wrong, the worst first."""
    told = [
        ("fails" if check.status is CheckStatus.FAIL else "warning", f"{check.name}: {check.message}")
        for check in plan.checks
        if check.status is not CheckStatus.PASS
    ]
    for remark in plan.diagnostics:
        place = f"{remark.range}: " if remark.range else ""
        hint = f" ({remark.hint})" if remark.hint else ""
        told.append((remark.severity, f"{place}{remark.message}{hint}"))
    yield from (_remark(*one) for one in sorted(told, key=lambda one: _WORST_FIRST.index(one[0])))
    if told:
        yield ()


_WORST_FIRST = ("fails", "error", "warning", "note")


def _remark(word: str, said: str) -> Line:
    """One column for how bad it is, one for what it is."""
    style = {"fails": "red", "note": "dim"}.get(word, "yellow")
    return Piece(f"{word:<8} ", style), Piece(said)
