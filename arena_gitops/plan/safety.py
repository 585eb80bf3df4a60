"""What may not happen to a resource: each rule turns a change into a *blocked* one.

A blocked change keeps its place in the plan and says what to do; a plan with one is not applyable (exit 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arena_gitops.plan.classify import spec_at
from arena_gitops.plan.kept import fits
from arena_gitops.plan.model import Action, Change, Fit
from arena_gitops.plan.wording import algorithm_of
from arena_gitops.spec.algorithms import ALGORITHMS
from arena_gitops.spec.job import RunState
from arena_gitops.spec.resource import Address, is_preview
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource, ObservedState

PROTECTED = "protected"
ALLOW_INTERRUPT = "interrupt"
"""`--allow interrupt`: a running run may be stopped."""
ALLOW_EMPTY = "empty"
"""`--allow empty`: everything the stack owns may be removed."""
DOES_NOT_FIT = "does_not_fit"
ALLOW_OVERSIZE = "oversize"
"""`--allow oversize`: a run may start although it does not seem to fit."""
ALLOW_REMOVALS = "removals"
"""`--allow removals`: more than a few of the stack's resources may be removed."""
HELD = frozenset({RunState.STOPPED, RunState.FAILED})


@dataclass(frozen=True, slots=True)
class Block:
    """Why a change may not happen."""

    reason: str
    message: str


def conflict(address: Address, observed: ObservedState) -> Block | None:
    """A name that another stack owns is never taken over."""
    owner = observed.foreign.get(address)
    if owner is None:
        return None
    return Block(
        "owned_by_another_stack", f"{address} belongs to stack {owner} on this platform; choose another name"
    )


def removal(
    document: ResourceDocument, allow: frozenset[str], *, interrupts: bool, empty: bool
) -> Block | None:
    """Protection, the empty-repository guard, and running runs stand between a removed file and a retire."""
    if is_protected(document):
        return Block(
            PROTECTED,
            "lifecycle.protect is set: restore the file, apply with protect: false, then remove it",
        )
    if empty and ALLOW_EMPTY not in allow:
        return Block(
            "empty_repository", "the repository declares nothing; if that is meant, add --allow empty"
        )
    if interrupts and ALLOW_INTERRUPT not in allow:
        return Block(
            "interrupt_not_allowed", f"its run {_run(document)} is running; to stop it add --allow interrupt"
        )
    return None


def destruction(document: ResourceDocument, left: Sequence[Address]) -> Block | None:
    """Protection, and whatever would stay without what it builds on, stand in the way of `arena destroy`."""
    if is_protected(document):
        return Block(PROTECTED, "lifecycle.protect is set: apply with protect: false first")
    if not left:
        return None
    names = ", ".join(map(str, left))
    return Block(
        "user_not_selected",
        f"{names} {'uses' if len(left) == 1 else 'use'} it and would stay; "
        f"--select {document.kind}/{document.name}+ takes along whatever builds on it",
    )


def is_protected(document: ResourceDocument) -> bool:
    """Whether somebody has said that it must stay; the platform remembers that when the file is gone.

    Nothing of a preview stays: it goes with its pull request.
    """
    return not is_preview(document.owner.namespace) and spec_at(document.spec, "lifecycle.protect") is True


def trainable(resource: DesiredResource, observed: ObservedState) -> Block | None:
    """Only what this platform can train may be submitted."""
    if observed.limits.judges_manifests:
        return None
    pin = resource.spec.get("trainer")
    if pin is not None and observed.trainer is not None and not fits(str(pin), observed.trainer):
        return Block(
            "trainer_not_here",
            f"it pins trainer {pin}, this platform trains with {observed.trainer}: what is trained stays as it is; "
            f"to train with {observed.trainer}, write trainer: {observed.trainer!r}, or take the line out",
        )
    name = algorithm_of(resource)
    rooms = ALGORITHMS if observed.algorithms is None else frozenset(observed.algorithms)
    if name not in rooms:
        return Block(
            "algorithm_without_room",
            f"{name} cannot be trained here; this platform trains {', '.join(sorted(rooms))}",
        )
    if resource.refusals:
        return Block("manifest_without_room", "; ".join(resource.refusals))
    return None


def oversize(fit: Fit | None, allow: frozenset[str]) -> Block | None:
    """What cannot fit would fail after the first credits are spent."""
    if fit is None or fit.verdict != "no_fit" or ALLOW_OVERSIZE in allow:
        return None
    return Block(
        DOES_NOT_FIT,
        f"needs at least {fit.least_gib:.3g} GiB, there are {fit.have_gib:.3g}; take a larger tier, fewer or smaller "
        "adapters, a shorter context or a smaller model (or --allow oversize, if you know better)",
    )


def left_out(change: Change, parents: Sequence[Change]) -> Block | None:
    """With a part of the stack: nothing is started on what is itself about to be made."""
    if not change.action.acts:
        return None
    missing = {Action.CREATE} if change.at.kind == "deployment" else {Action.CREATE, Action.NEW_VERSION}
    for parent in parents:
        if parent.action in missing:
            why = "does not exist yet" if parent.action is Action.CREATE else "is to be trained anew"
            return Block(
                "parent_not_selected",
                f"{parent.address}, which it builds on, {why} and is not selected; "
                f"--select +{change.address} takes it along",
            )
    return None


def resumable(action: Action, document: ResourceDocument) -> Block | None:
    """A run that failed before its first checkpoint has nothing to resume from."""
    run = document.run
    if action is not Action.RESUME or run is None or run.state != "failed" or run.checkpoints:
        return None
    return Block(
        "no_checkpoint", f"run {run.run_id} failed before its first checkpoint: there is nothing to resume"
    )


def held_move(action: Action, resource: DesiredResource, document: ResourceDocument) -> Block | None:
    """A new name is no reason to spend again on a run that somebody or a failure stopped."""
    same = resource.fingerprint.run == document.fingerprint.run
    run = document.run
    if run is None or run.state not in HELD or action is not Action.CREATE or not same:
        return None
    return Block(
        "move_of_held_run",
        f"{document.kind}/{document.name} cannot be renamed while its run is {run.state.value}: "
        "it would be trained anew; keep the name until it has a result, or remove it first",
    )


def undeclared_move(address: Address, old: Address | None) -> Block | None:
    """A rename together with edits cannot be told from a new experiment in an old file: somebody must say."""
    if old is None:
        return None
    return Block(
        "rename_or_new",
        f"its file declared {old} before; if that is the same experiment, write in arena.yaml "
        f"moved: [{{from: {old}, to: {address}}}]; else put it into a file of its own",
    )


def _run(document: ResourceDocument) -> str:
    return document.run.run_id if document.run else ""
