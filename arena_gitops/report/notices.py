"""Comments and issues beside the plan's own comment: what was applied or refused, drift, previews.

Each begins with a hidden line that says what it is about, so that the next job finds it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arena_gitops.plan.drift import Drift
from arena_gitops.plan.model import Action, Change, Plan
from arena_gitops.report import words
from arena_gitops.report.github import (
    COMMENT_BYTES,
    NOTE_BYTES,
    Place,
    Section,
    alarms,
    brief,
    marker_of,
    where,
)
from arena_gitops.report.marker import Marker, State, signatures
from arena_gitops.report.rows import LONGEST_MESSAGE, message_of
from arena_gitops.report.untrusted import clipped, escaped, plain
from arena_gitops.spec.resource import served_as


def applied(body: str, run_url: str) -> str:
    """The comment of a plan, once it has been made so."""
    return _ended(body, "applied", f"**Applied.** {where(Place('', run_url=run_url))}")


def superseded(body: str, plan_id: str, run_url: str) -> str:
    """The comment of a plan in whose place another one was applied, which somebody approved by its id."""
    instead = f"Applied instead, by a second approval: `{plain(plan_id)}`."
    return _ended(body, "superseded", f"**Superseded.** {instead} {where(Place('', run_url=run_url))}")


def outdated(body: str) -> str:
    """An older comment of ours about the same: folded, so that nobody takes it for the plan."""
    marker = Marker.find(body)
    if marker is None or marker.state != "open":
        return body
    rest = body.replace("\r\n", "\n").partition("\n")[2].strip()
    told = marker.model_copy(update={"state": "superseded"}).render()
    return f"{told}\n<details><summary>Superseded by a newer comment</summary>\n\n{rest}\n\n</details>\n"


def _ended(body: str, state: State, told: str) -> str:
    marker = Marker.find(body)
    if marker is None or marker.state != "open":
        return body
    rest = body.replace("\r\n", "\n").partition("\n")[2].rstrip()
    return f"{marker.model_copy(update={'state': state}).render()}\n{rest}\n\n{told}\n"


def differences(approved: Marker, plan: Plan) -> Iterable[str]:
    """What is no longer as it was approved, one line per resource."""
    now = signatures(plan)
    before = approved.changes
    if before is None:
        return ["the approved plan was too large to be compared resource by resource"]
    actions = {change.address: words.verb(change) for change in plan.changes}
    lines = [f"+ {address}: {actions[address]} was not approved" for address in now if address not in before]
    lines += [f"- {address}: approved, and no longer planned" for address in before if address not in now]
    chosen = {change.address: change.message for change in plan.changes if change.action is Action.PROMOTE}
    lines += [
        f"~ {address}: {actions[address]} is not what was approved ({_what(chosen.get(address))})"
        for address in now
        if address in before and now[address] != before[address]
    ]
    return lines


def _what(choice: str | None) -> str:
    """In what way it differs, as far as a digest of the approved change tells; one line."""
    return "other content, or another stored state" if choice is None else f"now {' '.join(choice.split())}"


def unapproved(approved: Marker, plan: Plan) -> tuple[Change, ...]:
    """The changes that are not as they were approved; all of them where that can no longer be told."""
    now, before = signatures(plan), approved.changes or {}
    return tuple(c for c in plan.changes if c.address in now and before.get(c.address) != now[c.address])


def mismatch(approved: Marker, plan: Plan, place: Place, *, budget: int = COMMENT_BYTES) -> str:
    """The comment after a merge whose approved plan is no longer what would happen."""
    title = f"⚠️ Not applied to {escaped(place.target)}: the plan needs to be approved again"
    foot = (
        f"To approve what is planned now, run the apply workflow by hand with this plan's id. {where(place)}"
    )
    return _changed((title, foot), approved, plan, place, budget)


def accepted(approved: Marker, plan: Plan, place: Place, accepts: str, *, budget: int = COMMENT_BYTES) -> str:
    """The comment after a merge whose plan had changed by then and was applied all the same."""
    title = f"⚠️ Applied to {escaped(place.target)}, although the plan has changed since it was approved"
    foot = f"The apply workflow says `--accept-plan-change {accepts}`. {where(place)}"
    return _changed((title, foot), approved, plan, place, budget)


def reapproved(approved: Marker, plan: Plan, place: Place, *, budget: int = COMMENT_BYTES) -> str:
    """The comment after a second approval: what was applied is not what the pull request shows."""
    title = f"✅ Applied to {escaped(place.target)} by a second approval"
    foot = f"Somebody ran the apply workflow by hand with the id of this plan. {where(place)}"
    return _changed((title, foot), approved, plan, place, budget)


def _changed(words_of: tuple[str, str], approved: Marker, plan: Plan, place: Place, budget: int) -> str:
    title, foot = words_of
    head = [
        mismatch_key(place),
        f"### {title}",
        "",
        f"Approved was `{plain(approved.plan_id or 'nothing')}`, now it is `{plain(plan.plan_id)}`.",
        f"**{brief(plan)}**",
        "",
        *alarms(plan),
    ]
    lines = [clipped(line, LONGEST_MESSAGE) for line in differences(approved, plan)]
    section = Section(0, lines, fence="text")
    size = sum(len(line.encode()) + 1 for line in (*head, foot)) + section.size + NOTE_BYTES
    shown = section.without(size - budget) if size > budget else section
    return "\n".join(head) + f"\n{shown.render()}\n{foot}\n"


def mismatch_key(place: Place) -> str:
    """The first line of such a comment: one per stack and target."""
    return key_of("mismatch", place)


def drifted(found: Drift, place: Place, *, budget: int = COMMENT_BYTES) -> str:
    """The text of the issue about drift. No times and no links in it: what has not changed is not written again."""
    count = f"{len(found.entries)} resource{'' if len(found.entries) == 1 else 's'}"
    lines = [f"- {escaped(entry.address)}: {message_of(entry.message)}" for entry in found.entries]
    told = f"{count} not as stack {escaped(found.stack)} says:" if lines else "No drift."
    unseen = [f"- {escaped(entry.address)}: {message_of(entry.message)}" for entry in found.errors]
    told += "\n\nCould not be looked at:\n\n" + "\n".join(unseen) if unseen else ""
    head = f"{drift_key(place)}\n### Drift on {escaped(found.target)}\n\n{told}\n\n"
    section = Section(0, lines, title="Drift")
    excess = len(head.encode()) + section.size + NOTE_BYTES - budget
    return head + (section.without(excess) if excess > 0 else section).render()


def drift_key(place: Place) -> str:
    """The first line of such an issue: one per stack and target."""
    return key_of("drift", place)


def previewed(plan: Plan, place: Place, *, budget: int = COMMENT_BYTES) -> str:
    """The comment about a preview that was applied: what it is and how it is reached."""
    head = [
        preview_key(place),
        f"### 🧪 Preview of {escaped(place.target)} in namespace `{plain(plan.namespace)}`",
        "",
        f"**{brief(plan)}**",
        "",
        *alarms(plan),
    ]
    foot = [
        "Runs of a preview are cut short (`preview.max_steps` in arena.yaml) and change nothing of `main`.",
        "All of it is removed when the pull request is closed or its label is taken away.",
        "",
        f"<sub>commit {escaped(place.head[:12])} · {where(place)}</sub>",
    ]
    section = Section(0, list(_of_preview(plan)), title="Preview")
    size = sum(len(line.encode()) + 1 for line in (*head, *foot)) + section.size + NOTE_BYTES
    shown = section.without(size - budget) if size > budget else section
    return "\n".join(head) + f"\n{shown.render()}\n" + "\n".join(foot) + "\n"


def collected(plan: Plan, place: Place) -> str:
    """The same comment, once everything of the preview is gone."""
    count = sum(change.action.removes for change in plan.changes)
    data = "with all data that nobody else uses" if plan.scope.purge else "what was trained stays for `main`"
    return (
        f"{preview_key(place)}\n### 🧹 Preview of {escaped(place.target)} collected\n\n"
        f"{count} resource{'' if count == 1 else 's'} of namespace `{plain(plan.namespace)}` removed, {data}. "
        f"{where(place)}\n"
    )


def preview_key(place: Place) -> str:
    """The first line of such a comment: one per stack and target."""
    return key_of("preview", place)


def _of_preview(plan: Plan) -> Iterator[str]:
    for change in plan.changes:
        if change.at.kind == "deployment" and not change.action.removes:
            name = served_as(plan.namespace, change.at.name)
            yield f"- {escaped(change.address)}: answers as `{plain(name)}` once it serves"
        elif change.action.acts:
            yield f"- {escaped(change.address)}: {words.verb(change)}, {message_of(change.message)}"


def key_of(about: str, place: Place) -> str:
    """The first line of a comment about something, by which it is found again."""
    return marker_of(Place(place.target, place.root)).render().replace("arena:plan", f"arena:{about}", 1)
