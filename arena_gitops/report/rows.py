"""Changes as rows of a table: one each, one for many of which the same is to be said, and a look at very many.

Every text of a repository that strangers can change passes `untrusted` here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from arena_gitops.plan.model import Action, Change
from arena_gitops.report import words
from arena_gitops.report.untrusted import clipped, escaped

Item = TypeVar("Item")

TABLE = "| | resource | action | why | cost |\n|---|---|---|---|---|\n"
LONGEST_MESSAGE = 400
"""Characters of one message; the plan document has all of them."""
ALIKE = 6
"""From so many on, resources of which the same is said share a line."""
PER_LINE = 60
NAMED = 3
"""Names in the row of an overview."""
STOPS = "**stops a running run**"

URL = re.compile(r"https?://[A-Za-z0-9.:/_-]+(?:#[A-Za-z0-9./_-]+)?")


def rows(changes: Iterable[Change]) -> Iterator[str]:
    """A row per change, and one for many of which the same is to be said."""
    alike: dict[tuple[str, str, str, str, str], list[Change]] = {}
    for change in changes:
        cost = message_of(words.cost_line(change))
        said = (words.MARKS[change.action], words.verb(change), why(change), cost, change.at.kind)
        alike.setdefault(said, []).append(change)
    for (mark, verb, reason, cost, kind), found in alike.items():
        if len(found) < ALIKE:
            yield from (f"| `{mark}` | {linked(one)} | {verb} | {reason} | {cost} |" for one in found)
            continue
        for some in batched(found, PER_LINE):
            names = ", ".join(linked(one, one.at.name) for one in some)
            each = f"{cost} each" if cost else ""
            yield f"| `{mark}` | **{counted(len(some), kind)}:** {names} | {verb} | {reason} | {each} |"


def overview(changes: Iterable[Change]) -> Iterator[str]:
    """A row per kind and action, however many there are: how many, the first of them, what they cost together."""
    groups: dict[tuple[str, str, str, bool], list[Change]] = {}
    for change in changes:
        stops = change.interrupts and change.action.acts
        key = (words.MARKS[change.action], words.verb(change), change.at.kind, stops)
        groups.setdefault(key, []).append(change)
    for (mark, verb, kind, stops), found in groups.items():
        reasons = {why(one) for one in found}
        reason = reasons.pop() if len(reasons) == 1 else ("**stops their running runs**" if stops else "")
        yield f"| `{mark}` | {_named(found, kind)} | {verb} | {reason} | {_together(found)} |"


def why(change: Change) -> str:
    """The reason of a change, and before it that something is stopped."""
    told = message_of(change.message or ("new" if change.action is Action.CREATE else ""))
    return f"{STOPS}; {told}" if change.interrupts and change.action.acts else told


def counted(count: int, kind: str) -> str:
    """`12 experiments`."""
    return f"{count:,} {kind}{'' if count == 1 else 's'}"


def linked(change: Change, name: str | None = None) -> str:
    """The address, or a shorter name, as a link to its run in MLflow where there is one."""
    url, text = change.mlflow_url or "", escaped(name or change.address)
    return f"[{text}]({url})" if URL.fullmatch(url) else text


def message_of(raw: str) -> str:
    """A stranger's words, as text and not too long."""
    return escaped(clipped(raw, LONGEST_MESSAGE))


def batched(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """In parts of at most so many."""
    return (items[start : start + most] for start in range(0, len(items), most))


def _named(changes: Sequence[Change], kind: str) -> str:
    """How many, and the first of them."""
    if len(changes) == 1:
        return linked(changes[0])
    names = ", ".join(linked(one, one.at.name) for one in changes[:NAMED])
    more = f" and {len(changes) - NAMED:,} more" if len(changes) > NAMED else ""
    return f"**{counted(len(changes), kind)}:** {names}{more}"


def _together(changes: Sequence[Change]) -> str:
    """What they cost at most; of those that serve, only the table says it."""
    costs = [one.cost for one in changes if one.cost is not None and one.at.kind != "deployment"]
    known = sum(cost.max for cost in costs if cost.max is not None)
    unknown = sum(cost.max is None for cost in costs)
    parts = [f"up to {words.credits(round(known, 6))}"] if known else []
    parts += [f"{unknown:,} unknown"] if unknown else []
    return ", ".join(parts) or ("0 credits" if costs else "")
