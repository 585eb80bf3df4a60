"""Words and signs that every view shares, and the one summary line whose format is a contract."""

from __future__ import annotations

import json
from typing import Any

from arena_gitops.plan.cost import duration
from arena_gitops.plan.diff import Op
from arena_gitops.plan.model import Action, Change, CheckStatus, Cost, FieldChange, Plan

MARKS: dict[Action, str] = {
    Action.CREATE: "+",
    Action.UPDATE: "~",
    Action.NEW_VERSION: "±",
    Action.PROMOTE: "↑",
    Action.RESUME: "~",
    Action.CAP: "↓",
    Action.MIGRATE: "»",
    Action.REUSE: "=",
    Action.MOVE: "→",
    Action.IMPORT: "←",
    Action.RETIRE: "-",
    Action.DESTROY: "-",
    Action.PENDING: "?",
    Action.HELD: "!",
    Action.STALE: "!",
    Action.BLOCKED: "!",
    Action.NOOP: " ",
}

VERBS: dict[Action, str] = {
    Action.CREATE: "create",
    Action.UPDATE: "update",
    Action.NEW_VERSION: "new version",
    Action.PROMOTE: "promote",
    Action.RESUME: "resume",
    Action.CAP: "cap",
    Action.MIGRATE: "migrate",
    Action.REUSE: "reuse",
    Action.MOVE: "move",
    Action.IMPORT: "import",
    Action.RETIRE: "retire",
    Action.DESTROY: "undeploy",
    Action.PENDING: "pending",
    Action.HELD: "held",
    Action.STALE: "stale",
    Action.BLOCKED: "BLOCKED",
    Action.NOOP: "unchanged",
}


STATUS: dict[CheckStatus, str] = {CheckStatus.WARN: "warning:", CheckStatus.FAIL: "**fails**"}
"""What a check that does not pass begins with, in markdown."""


def verb(change: Change) -> str:
    """What happens, in one or two words; only a deployment is undeployed."""
    return (
        "destroy"
        if change.action is Action.DESTROY and change.at.kind != "deployment"
        else VERBS[change.action]
    )


UNKNOWN = {
    "version": "version number",
    "run_id": "run",
    "checkpoint": "checkpoint",
    "revision": "revision",
    "url": "address",
}
"""`unknown` codes → what only apply can tell."""

LONGEST = 60
"""Characters of a value that are shown; the JSON has all of them."""


def value(raw: Any) -> str:
    """A value of a spec, short enough for a line."""
    if isinstance(raw, bool) or raw is None:
        return {True: "true", False: "false", None: "none"}[raw]
    if isinstance(raw, (int, float)):
        return f"{raw:,}" if isinstance(raw, int) and abs(raw) >= 1_000 else repr(raw)
    if isinstance(raw, str):
        text = (
            f"sha256:{raw[7:15]}…"
            if raw.startswith("sha256:") and len(raw) > 20
            else json.dumps(raw, ensure_ascii=False)
        )
    else:
        text = json.dumps(raw, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


_CONTENTS = ("inputs.reward.files.", "inputs.environment.files.")
"""What an experiment says of its inputs in words: their code is told where it is declared."""


def told(change: Change) -> tuple[FieldChange, ...]:
    """Fields worth a line: not the digests of files whose contents are shown below them."""
    hidden: tuple[str, ...] = ("files.",) if change.code else ()
    hidden += ("digest",) if change.data else ()
    hidden += _CONTENTS if change.at.kind == "experiment" and change.action.acts else ()
    return tuple(field for field in change.fields if not hidden or not field.path.startswith(hidden))


def transition(field: FieldChange) -> str:
    """Old → new, or what was added or removed."""
    old, new = (_told(field.path, side) for side in (field.old, field.new))
    match field.op:
        case Op.ADD:
            return f"added {new}"
        case Op.REMOVE:
            return f"removed {old}"
        case Op.REPLACE:
            return f"{old} → {new}"


def _told(path: str, raw: Any) -> str:
    """A value, seconds as people write them."""
    seconds = path.endswith("_s") and isinstance(raw, (int, float)) and not isinstance(raw, bool)
    return duration(raw) if seconds else value(raw)


def cost_line(change: Change) -> str:
    """What one change costs; empty when it costs nothing by nature."""
    cost = change.cost
    if cost is None:
        return ""
    if change.at.kind == "deployment":
        return f"{cost.basis}" if cost.rate is not None else f"unknown ({cost.basis})"
    ceiling = "unknown" if cost.max is None else f"{'up to ' if cost.max else ''}{credits(cost.max)}"
    return f"{ceiling} ({cost.basis}){estimate(cost)}"


def fit_line(change: Change) -> str:
    """Whether it fits, with the numbers; empty where nothing starts."""
    fit = change.fit
    if fit is None:
        return ""
    if fit.least_gib is None or fit.most_gib is None or fit.have_gib is None:
        return f"unknown whether it fits ({fit.basis})"
    said = {"ok": "fits", "tight": "may not fit", "no_fit": "does not fit"}.get(fit.verdict, fit.verdict)
    parts = ", ".join(f"{name} {size:.2g}" for name, size in fit.parts.items() if size >= 0.05)
    why = f"; {fit.basis}" if "environments" in fit.parts else ""
    return (
        f"{said}: {fit.least_gib:.3g} to {fit.most_gib:.3g} of {fit.have_gib:.3g} GiB (at most: {parts}){why}"
    )


def estimate(cost: Cost) -> str:
    """What it will probably take; empty without a basis."""
    if cost.est_seconds is None:
        return ""
    price = f"{credits(cost.est)}, " if cost.est else ""
    word = "at least" if cost.est_least else "probably"
    return f"; {word} {price}{duration(cost.est_seconds)} ({cost.est_basis})"


def credits(number: float) -> str:  # noqa: A001 - the unit's own name; nobody needs the site builtin
    """`118.3 credits`."""
    return f"{number:,.10g} credit{'' if number == 1 else 's'}"


def unmanaged(count: int) -> str:
    """What nobody manages; empty where there is nothing."""
    return f"unmanaged: {count:,} (arena import --list)" if count else ""


def summary_line(plan: Plan) -> str:
    """The one line for grep: every count, in this order, whatever they are."""
    n = plan.summary
    versions = f"{n['new_version']} new version{'' if n['new_version'] == 1 else 's'}"
    promoted = [f"{n['promote']} to promote"] if n["promote"] else []
    acts = [f"{n['create']} to create", f"{n['update']} to update", versions, *promoted]
    acts += [f"{n[key]} to {key}" for key in ("resume", "reuse", "retire", "destroy")]
    acts += [f"{n[key]} to {key}" for key in ("cap", "move", "migrate", "import") if n.get(key)]
    states = [f"{n[key]} {key}" for key in ("pending", "held", "stale", "blocked", "unchanged")]
    return f"Plan: {', '.join(acts)}. {', '.join(states)}. Cost: {_total(plan)}."


def money_lines(plan: Plan) -> list[str]:
    """What there is to say of credits beside what the plan can cost."""
    cost = plan.cost
    lines = []
    if cost.running_saved:
        lines.append(f"The runs it stops could still have cost up to {credits(cost.running_saved)}.")
    if cost.declared_before and cost.declared != cost.declared_before and plan.mode != "destroy":
        what = "that is declared" if plan.complete else "of that part"
        turn = f"{cost.declared_before:,.10g} → {credits(cost.declared)}"
        more = f"{cost.declared - cost.declared_before:+,.10g}"
        lines.append(f"Training everything {what} once: up to {turn} ({more}).")
    if cost.balance is not None and cost.max_new:
        lines.append(f"Left to spend: {credits(cost.balance)}.")
    return lines


def _total(plan: Plan) -> str:
    cost = plan.cost
    parts = [f"up to {credits(cost.max_new)}"] if cost.max_new else []
    if cost.est_new and parts:
        parts[0] += f" (probably {cost.est_new:,.10g})"
    if cost.unknown:
        parts.append(f"unknown for {cost.unknown} change{'' if cost.unknown == 1 else 's'}")
    if cost.rate_per_hour:
        parts.append(f"{cost.rate_per_hour:,.10g} credits per hour served")
    return ", ".join(parts) or "0 credits"
