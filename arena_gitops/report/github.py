"""A plan as GitHub shows it: the comment of a pull request and the summary of a job, each within its limit.

GitHub refuses a comment of more than 65,536 characters and drops a summary of more than a mebibyte, so both
have a budget in bytes. What does not fit is lost in a fixed order: unchanged resources, code, fields, resources. The
summary line, what is destroyed, interrupted or blocked, the costs and the plan's id always stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from arena_gitops.errors import Diagnostic
from arena_gitops.plan.model import Action, Change, CheckOutcome, CheckStatus, Plan
from arena_gitops.report import diffs, text, words
from arena_gitops.report.marker import Marker, fitting, signatures
from arena_gitops.report.rows import (
    ALIKE,
    LONGEST_MESSAGE,
    PER_LINE,
    STOPS,
    TABLE,
    URL,
    batched,
    counted,
    linked,
    message_of,
    overview,
    rows,
)
from arena_gitops.report.untrusted import clipped, escaped, fenced, plain
from arena_gitops.spec.resource import MAIN, is_preview

COMMENT_BYTES = 60_000
SUMMARY_BYTES = 900 * 1024
ALARM_BYTES = 20_000
"""Room for what must not be overlooked; a plan that undeploys thousands names as many as fit."""
IN_SIGHT = 30
"""Resources in a table that is not folded; of more there is an overview."""
PER_HEADING = 4
UNVERIFIED = "> [!NOTE]\n> Made by the job of a fork, which can say what it likes. Read the change itself; this approves nothing."
NOTE_BYTES = 80
"""Kept free per section for the line that says how much is missing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a plan was made and where more of it can be read."""

    target: str
    root: str = ""
    head: str = ""
    base: str = ""
    run_url: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of which the last ones may be lost."""

    rank: int
    """sections of a lower rank are lost first"""
    items: Sequence[str]
    before: str = ""
    after: str = ""
    title: str = ""
    missing: int = 0
    fence: str = ""
    """the language of a code block; empty for Markdown"""

    def render(self) -> str:
        """As Markdown."""
        if not self.items:
            return f"_{self.title}: {self.missing} in the job summary._\n" if self.missing else ""
        body = fenced("\n".join(self.items).split("\n"), self.fence) if self.fence else "\n".join(self.items)
        more = f"\n\n_… {self.missing} more in the job summary._" if self.missing else ""
        return f"{self.before}{body}{more}{self.after}\n"

    @property
    def size(self) -> int:
        """Bytes of it."""
        return len(self.render().encode())

    def without(self, excess: int) -> Section:
        """The same with at least `excess` bytes fewer, if it has them."""
        kept, freed = list(self.items), 0
        while kept and freed < excess:
            freed += len(kept.pop().encode()) + 1
        return replace(self, items=kept, missing=self.missing + len(self.items) - len(kept))


def comment(plan: Plan, place: Place, *, approves: bool = True, budget: int = COMMENT_BYTES) -> str:
    """The body of the comment, marker first. One that a stranger's job asked for approves nothing, links nowhere."""
    marker = marker_of(place)
    if not approves:
        unlinked = tuple(change.model_copy(update={"mlflow_url": None}) for change in plan.changes)
        plan = plan.model_copy(update={"changes": unlinked})
    if approves and plan.mode == "online":
        known = {"plan_id": plan.plan_id, "changes": fitting(signatures(plan))}
        marker = marker.model_copy(update=known)
    warning = "" if approves else f"{UNVERIFIED}\n\n"
    room = budget - len(marker.render().encode()) - len(warning.encode()) - 8
    body, truncated = _fitted(plan, place, room)
    return f"{marker.model_copy(update={'truncated': truncated}).render()}\n{warning}{body}"


def summary(plan: Plan, place: Place, *, budget: int = SUMMARY_BYTES) -> str:
    """The same for the job's own page, which has room for more."""
    return _fitted(plan, place, budget)[0]


def refused(problems: Sequence[Diagnostic], place: Place) -> str:
    """The comment when there is no plan; it takes the place of an older one, which nobody shall apply."""
    return f"{marker_of(place).render()}\n{unplanned(problems, place, budget=COMMENT_BYTES - 4_000)}"


def unplanned(problems: Sequence[Diagnostic], place: Place, *, budget: int = SUMMARY_BYTES) -> str:
    """Why there is no plan: every problem with its place."""
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    head = f"### ❌ No plan for {escaped(place.target)}\n\n**{count} in the repository.** {where(place)}\n\n"
    lines = [
        line
        for problem in problems
        for line in clipped(str(problem), 2 * LONGEST_MESSAGE).splitlines() or [""]
    ]
    section = Section(0, lines, title="Problems", fence="text")
    excess = len(head.encode()) + section.size + NOTE_BYTES - budget
    return head + (section.without(excess) if excess > 0 else section).render()


def marker_of(place: Place) -> Marker:
    """The marker of a comment about this place, without a plan."""
    return Marker(target=place.target, root=place.root, plan_id=None, head=place.head, base=place.base)


def _fitted(plan: Plan, place: Place, budget: int) -> tuple[str, bool]:
    head, foot = "\n".join(_head(plan, place)), _foot(plan, place)
    sections = list(_sections(plan))
    free = budget - len(head.encode()) - len(foot.encode()) - NOTE_BYTES * (len(sections) + 1)
    truncated = False
    for index in sorted(range(len(sections)), key=lambda i: sections[i].rank):
        excess = sum(section.size for section in sections) - free
        if excess <= 0:
            break
        sections[index] = sections[index].without(excess)
        truncated = True
    body = "\n".join(filter(None, (section.render() for section in sections)))
    return f"{head}\n{body}\n{foot}\n", truncated


def _head(plan: Plan, place: Place) -> Iterator[str]:
    beside = " (preview) " if is_preview(plan.namespace) else ", namespace "
    other = "" if plan.namespace == MAIN else plan.namespace
    sign = "❌" if not plan.applyable else ("📋" if plan.has_changes else "✅")
    yield f"### {sign} Plan for {escaped(place.target)}" + "".join(
        f"{before}{escaped(text)}" for before, text in ((", ", place.root), (beside, other)) if text
    )
    yield ""
    yield f"**{brief(plan)}**"
    yield ""
    if money := words.money_lines(plan):
        yield f"{' '.join(money)}\n"
    if plan.mode == "offline":
        yield f"_Offline, against {escaped(plan.against or 'nothing')}: {text.OFFLINE[0].lower()}{text.OFFLINE[1:]}_\n"
    if not plan.has_changes:
        yield "No changes to make.\n"
    yield from alarms(plan)


def brief(plan: Plan) -> str:
    """The summary line without its zeros."""
    counts, _, cost = words.summary_line(plan).removeprefix("Plan: ").rpartition(" Cost: ")
    parts = [part for sentence in counts.rstrip(".").split(". ") for part in sentence.split(", ")]
    told = ", ".join(part for part in parts if not part.startswith("0 "))
    return f"{told or 'Nothing'}. Cost: {cost}"


def alarms(plan: Plan) -> Iterator[str]:
    """What a reviewer must not overlook, whatever else is lost."""
    lines = [f"**fails** {escaped(check.name)}: {message_of(check.message)}" for check in _failing(plan)]
    alike: dict[tuple[str, str], list[Change]] = {}
    for change in plan.changes:
        if change.action is Action.BLOCKED:
            lines.append(f"**blocked** {escaped(change.address)}: {message_of(change.message)}")
        elif (ends := _ends(change)) is not None:
            alike.setdefault((ends, change.at.kind), []).append(change)
    for (what, kind), found in sorted(alike.items(), key=lambda pair: "stops" not in pair[0][0]):
        if len(found) < ALIKE:
            lines += [f"{what} {escaped(change.address)}" for change in found]
            continue
        for some in batched(found, PER_LINE):
            names = ", ".join(escaped(change.at.name) for change in some)
            lines.append(f"{what} {counted(len(some), kind)}: {names}")
    if not lines:
        return
    yield "> [!CAUTION]"
    room = ALARM_BYTES
    for told, line in enumerate(lines):
        room -= len(line.encode()) + 5
        if room < 0:
            yield f"> - **and {len(lines) - told} more of these**, in the job summary"
            break
        yield f"> - {line}"
    yield ""


def _ends(change: Change) -> str | None:
    """What a change puts an end to; None where everything goes on."""
    if change.interrupts and change.action.acts:
        removes = change.action.removes
        return f"**{words.verb(change)}s, and stops the running run of**" if removes else f"{STOPS} of"
    return f"**{words.verb(change)}s**" if change.action.removes else None


def _failing(plan: Plan) -> list[CheckOutcome]:
    return [check for check in plan.checks if check.status is CheckStatus.FAIL]


def _sections(plan: Plan) -> Iterator[Section]:
    """In the order in which they are read."""
    elsewhere = {Action.NOOP, Action.PENDING}
    told = [change for change in plan.changes if change.action not in elsewhere]
    told.sort(key=lambda change: -change.severity)
    if 0 < len(told) <= IN_SIGHT:
        yield Section(4, list(rows(told)), before=TABLE, title="Resources")
    elif told:
        yield Section(6, list(overview(told)), before=TABLE, title="Overview")
        before = f"<details><summary>{len(told)} resources</summary>\n\n{TABLE}"
        yield Section(4, list(rows(told)), before=before, after="\n\n</details>", title="Resources")
    if waiting := [change for change in plan.changes if change.action is Action.PENDING]:
        lines = [f"> - {linked(c)}: {message_of(c.message)}" for c in waiting]
        before = "> [!IMPORTANT]\n> **Waiting for somebody's choice**, which no merge makes:\n"
        yield Section(5, lines, before=before, title="Waiting")
    remarks = list(_remarks(plan))
    if remarks:
        yield Section(3, remarks, title="Remarks")
    if details := list(_details(told)):
        yield _folded(2, "Details", details, gap="\n")
    code = [block for change in told if (block := _code(change))]
    if code:
        yield _folded(1, "Code", code, language="diff")
    unchanged = [change for change in plan.changes if change.action is Action.NOOP]
    if unchanged:
        lines = [clipped(f"{c.address}  {c.message}", LONGEST_MESSAGE) for c in unchanged]
        yield _folded(0, "Unchanged", lines)


def _folded(rank: int, title: str, items: Sequence[str], *, language: str = "text", gap: str = "") -> Section:
    before = f"<details><summary>{title} ({len(items)})</summary>\n\n"
    spaced = [f"{item}{gap}" for item in items[:-1]] + list(items[-1:])
    return Section(rank, spaced, before, "\n\n</details>", title=title, fence=language)


def _remarks(plan: Plan) -> Iterator[str]:
    for check in plan.checks:
        if check.status is CheckStatus.WARN:
            yield f"- warning, {escaped(check.name)}: {message_of(check.message)}"
    for remark in plan.diagnostics:
        place = f"{escaped(str(remark.range))}: " if remark.range else ""
        hint = f" ({message_of(remark.hint)})" if remark.hint else ""
        yield f"- {escaped(remark.severity)}: {place}{message_of(remark.message)}{hint}"


def _details(changes: Iterable[Change]) -> Iterator[str]:
    """Fields and notes below a heading; what is the same of several is said once."""
    alike: dict[str, list[str]] = {}
    for change in changes:
        if lines := "\n".join(_told(change)):
            alike.setdefault(lines, []).append(plain(change.address))
    for lines, addresses in alike.items():
        yield "\n".join([",\n".join(", ".join(some) for some in batched(addresses, PER_HEADING)), lines])


def _told(change: Change) -> Iterator[str]:
    """One line per field or note; none when there is nothing to add to the table."""
    for field in words.told(change):
        place = f"  {plain(str(field.range))}" if field.range else ""
        yield f"  {plain(field.path)}  {plain(words.transition(field))}  {field.cls.value}{place}"
    yield from (f"  {line}" for line, _ in (*diffs.scores(change), *diffs.data(change)))
    if fit := words.fit_line(change):
        yield f"  memory: {plain(fit)}"
    yield from (f"  {plain(clipped(note, LONGEST_MESSAGE))}" for note in change.notes)


def _code(change: Change) -> str:
    """A heading and the diff of its files, as GitHub colours it; empty where no code changed."""
    lines = [
        line.removeprefix("  ") if line.startswith("  ") else f"# {line}" for line, _ in diffs.code(change)
    ]
    return "\n".join([f"# {plain(change.address)}", *lines]) if lines else ""


def _foot(plan: Plan, place: Place) -> str:
    commit = f" · commit {escaped(place.head[:12])}" if place.head else ""
    which = "cannot be applied" if plan.mode == "offline" else f"plan `{plain(plan.plan_id)}`"
    return f"<sub>{which}{commit} · {where(place)}</sub>"


def where(place: Place) -> str:
    """Where more can be read."""
    return f"[job summary]({place.run_url})" if URL.fullmatch(place.run_url) else "See the job summary."
