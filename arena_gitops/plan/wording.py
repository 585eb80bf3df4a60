"""Reasons for people: one line per change, from the same facts that decided it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from arena_gitops.plan.classify import TRAINED, Finding, spec_at
from arena_gitops.plan.matrix import Cause
from arena_gitops.plan.model import Action, Cost, FieldChange
from arena_gitops.plan.phase import numbered
from arena_gitops.spec.job import RunState, RunStatus
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import KnownRun, ResourceDocument
from arena_gitops.state import DesiredResource


def reason(finding: Finding, document: ResourceDocument, action: Action) -> str:
    """Why a resource that exists is, or is not, touched."""
    run = document.run
    if action is Action.HELD and run is not None:
        return held(run)
    deciding = [field for field in finding.fields if field.reason == finding.cause.value]
    match finding.cause:
        case Cause.NONE:
            return progress(run) if run is not None else ""
        case cause if cause in _BUDGETS and run and _steps(deciding):
            return _budget(finding.cause, action, deciding, run)
        case Cause.COSMETIC if document.kind == "dataset":
            return f"the same rows as {numbered(document)}: only how the file is written differs; nothing is trained anew"
        case cause if cause in _PLAIN:
            return _PLAIN[cause].format(version=numbered(document))
        case _:
            consequence = _consequence(finding.cause, document.kind, deciding, run)
            return _named(deciding, consequence, document)


_BUDGETS = frozenset(
    {Cause.BUDGET_RAISED, Cause.BUDGET_SATISFIED, Cause.BUDGET_LOWERED, Cause.BUDGET_RECORDED}
)
_PLAIN = {
    Cause.RERUN: "the same work is trained once more",
    Cause.PARENT: "what it builds on is trained anew",
    Cause.COSMETIC: "behaves as {version}: only comments, docstrings or layout differ; nothing is trained anew",
}
_SEMANTIC = {
    TRAINED: "changes what is trained",
    "dataset": "has other rows",
    "reward": "changes what it does",
    "environment": "changes what it does",
}
_LATER = frozenset({Cause.OBSERVABILITY, Cause.BUDGET_RECORDED})
"""What a run that is already working learns only when it is started again."""


def _consequence(cause: Cause, kind: str, deciding: list[FieldChange], run: RunStatus | None) -> str:
    if cause is Cause.SEMANTIC:
        return _SEMANTIC[kind]
    if cause is Cause.DEFINITION and kind == "deployment":
        return "changes what is served"
    if cause is Cause.PLACEMENT and run is not None and run.state is RunState.RUNNING:
        return "moves the run: it stops, and goes on in its new place from its last saved state"
    later = ", from its next start on" if run is not None and not run.state.ended and cause in _LATER else ""
    if cause is Cause.ROTATED:
        return "has another value: whatever starts from now on is given it, nothing is trained anew"
    if cause is Cause.METADATA and kind == TRAINED:
        return "is metadata: no run is touched"
    return f"is {deciding[0].cls.value}{later}" if deciding else ""


def released(*, by_hand: bool) -> str:
    """What lets a held run go on: the same words for each, so that a plan says them once."""
    resume = ", let it go on with arena resume" if by_hand else ""
    return f"nothing is spent on it again by itself: change what it trains, raise its budget{resume}, or ask with --rerun"


def again(inputs: tuple[str, ...], ceiling: Cost | None) -> str:
    """How a stale experiment is trained again, and what that can cost."""
    flags = " ".join(f"--rerun-stale {address}" for address in inputs)
    price = (
        "at a cost that is not known"
        if ceiling is None or ceiling.max is None
        else f"for up to {ceiling.max:,.10g} credits"
    )
    return f"train it again {price}: {flags}"


def held(run: RunStatus) -> str:
    """Why nothing is spent on a run again by itself."""
    at = f"at step {run.step:,} of {run.max_steps:,}"
    if run.state is RunState.FAILED:
        why = f" ({run.reason.value})" if run.reason else ""
        return f"its run failed{why} {at}" + (f": {run.message}" if run.message else "")
    by = f" by {run.stopped_by}" if run.stopped_by else ""
    when = f" ({_utc(run.ended)})" if run.stopped_by and run.ended is not None else ""
    return f"its run was stopped{by} {at}{when}" + (f": {run.message}" if run.message else "")


def _utc(seconds: float) -> str:
    """A moment that reads the same wherever a plan is made, and whenever it is looked at."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def progress(run: RunStatus) -> str:
    """Where a run in flight is; empty once it has ended."""
    if run.state.ended:
        return ""
    if run.state is RunState.RUNNING:
        said = f"; {run.message}" if run.message else ""
        return f"running, step {run.step:,} of {run.max_steps:,}{said}"
    return run.state.value


def known_run(run: KnownRun) -> str:
    """A run that already did this work."""
    if run.version == 0:  # an offline plan: of the run nothing is known but that it is the same work
        return f"{TRAINED}/{run.experiment} is the same work"
    fitness = "" if run.fitness is None else f", fitness {run.fitness:.4g}"
    return f"run {run.run_id} of {run.experiment} v{run.version} is the same work ({run.state}{fitness})"


def removed(address: Address, document: ResourceDocument, *, shared: bool = False) -> str:
    """What removing the file means; a run that others share goes on."""
    if address.kind == "deployment":
        return "removed from the repository: undeployed, revisions are kept"
    if document.run is not None and not document.run.state.ended and not shared:
        return f"removed from the repository; its run is {progress(document.run)} and would be stopped"
    return "removed from the repository: forgotten, data is kept"


def destroyed(document: ResourceDocument, *, purge: bool) -> str:
    """What `arena destroy` means for one resource."""
    if document.kind == "deployment":
        return "undeployed, its revisions are deleted" if purge else "undeployed, revisions are kept"
    run = document.run
    now = f"; its run is {progress(run)}" if run is not None and not run.state.ended else ""
    return ("deleted for good, with its data" if purge else "forgotten, data is kept") + now


def powers(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """What the code of a reward may do beyond scoring."""
    network = (
        ("network: full, so its code may reach other machines",) if spec.get("network") == "full" else ()
    )
    secrets = spec.get("secrets") or ()
    return (*network, f"is given the secrets {', '.join(secrets)}") if secrets else network


def imported(document: ResourceDocument, *, differs: bool) -> str:
    """What taking over means for one resource."""
    made = "was made by a command: this stack takes it over"
    if document.run is None:
        return made
    run = f"run {document.run.run_id} ({document.run.state.value}) stays as it is"
    counts = "; what the repository says counts as what was trained" if differs else ""
    return f"{made}, {run}{counts}"


def _budget(cause: Cause, action: Action, deciding: list[FieldChange], run: RunStatus) -> str:
    if cause is Cause.BUDGET_RAISED:
        return f"the run goes on from step {run.step:,}"
    if cause is Cause.BUDGET_RECORDED:
        return f"{run.step:,} steps are done: only recorded"
    wanted = next(field.new for field in deciding if field.path.endswith(".max_steps"))
    new = _plain(wanted)
    if cause is Cause.BUDGET_LOWERED and action is not Action.NOOP:
        over = isinstance(wanted, int) and run.step >= wanted
        at = f"after its present iteration: {run.step:,} steps are done" if over else f"at {new} steps"
        return f"the run ends {at}, not at {run.max_steps:,}; what it has done stays"
    if not run.state.ended:
        return f"{new} steps are asked for; the running run goes on to {run.max_steps:,}"
    return f"{new} steps are asked for, {run.step:,} are done: nothing is taken back"


def _named(deciding: list[FieldChange], consequence: str, document: ResourceDocument) -> str:
    if not deciding:
        return ""
    names = list(dict.fromkeys(_name(field.path, document) for field in deciding))
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more} {consequence}"


def _name(path: str, document: ResourceDocument) -> str:
    """What people call a field: a path, or whose content it is the digest of."""
    match path.split("."):
        case ["inputs", slot, *rest] if rest and rest[0] in _CONTENT:
            address = spec_at(document.spec, f"inputs.{slot}.address") or f"its {slot}"
            return f"new {_CONTENT[rest[0]]} of {address}"
        case ["files", *rest]:
            return ".".join(rest)
        case ["digest"]:
            return "its file"
        case ["secret_versions", name]:
            return f"secret {name}"
        case _:
            return path


_CONTENT = {"digest": "content", "files": "code", "hf": "rows"}


def _steps(deciding: list[FieldChange]) -> bool:
    return any(field.path.endswith(".max_steps") for field in deciding)


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def algorithm_of(resource: DesiredResource) -> str | None:
    """The algorithm an experiment names."""
    name = spec_at(resource.spec, "manifest.algorithm.name")
    return None if name is None else str(name)
