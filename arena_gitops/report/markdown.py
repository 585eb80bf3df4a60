"""A plan for a pull request: a table to see at a glance, details folded, nothing that a reader could inject.

No forge is assumed; finding and updating a comment is somebody else's work.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena_gitops.plan.model import Action, Change, CheckStatus, Plan
from arena_gitops.report import text, words
from arena_gitops.report.untrusted import escaped, longest_run


def render(plan: Plan) -> str:
    """The body of a comment."""
    return "\n".join(_parts(plan)) + "\n"


def _parts(plan: Plan) -> Iterator[str]:
    against = f", offline against {escaped(plan.against)}" if plan.against else ""
    what = "Plan to destroy on" if plan.mode == "destroy" else "Plan for"
    yield f"### {what} {escaped(plan.target)}{against}"
    yield ""
    yield f"**{words.summary_line(plan)}**"
    yield ""
    if money := words.money_lines(plan):
        yield " ".join(money)
        yield ""
    if not plan.applyable:
        yield "**This plan is blocked: nothing of it will be applied.**"
        yield ""
    if not plan.complete:
        rest = "stays as it is" if plan.mode == "destroy" else "was not looked at, and nothing is removed"
        yield f"Only {', '.join(escaped(part) for part in plan.scope.select)}: the rest of the stack {rest}."
        yield ""
    if not plan.has_changes:
        yield escaped(text.settled(plan))
        yield ""
    changes = [change for change in plan.changes if change.action is not Action.NOOP]
    if changes:
        yield "| | resource | action | why | cost |"
        yield "|---|---|---|---|---|"
        yield from (_row(change) for change in changes)
        yield ""
    yield from _warnings(plan)
    if changes:
        yield from _details(plan)
    yield f"<sub>{text.OFFLINE if plan.mode == 'offline' else f'plan `{plan.plan_id}`'}</sub>"


def _row(change: Change) -> str:
    why = escaped(change.message)
    if change.interrupts and change.action.acts:
        why = f"**stops a running run**; {why}"
    mark = f"`{words.MARKS[change.action]}`"
    return (
        f"| {mark} | {change.address} | {words.verb(change)} | {why} | {escaped(words.cost_line(change))} |"
    )


def _warnings(plan: Plan) -> Iterator[str]:
    lines = [
        f"- {words.STATUS[check.status]} {check.name}: {escaped(check.message)}"
        for check in plan.checks
        if check.status is not CheckStatus.PASS
    ]
    for d in plan.diagnostics:
        place = f"{escaped(str(d.range))}: " if d.range else ""
        hint = f" ({escaped(d.hint)})" if d.hint else ""
        lines.append(f"- {d.severity}: {place}{escaped(d.message)}{hint}")
    if lines:
        yield from lines
        yield ""


def _details(plan: Plan) -> Iterator[str]:
    body = text.render(plan)
    fence = "`" * max(3, longest_run(body) + 1)
    yield "<details><summary>Details</summary>"
    yield ""
    yield f"{fence}text"
    yield body.rstrip("\n")
    yield fence
    yield ""
    yield "</details>"
    yield ""
