"""The use-cases, given a world: plan, apply, status. What the command line and Python callers share.

    world = World(platform=HttpPlatform(url, token))
    desired = load(find_root(Path.cwd()))
    planned = plan(world, desired, target="prod")
    apply(world, planned, desired, Consent.APPROVED)

Printing, asking and reading files is the caller's work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from arena_gitops.apply.engine import PARALLEL, Engine
from arena_gitops.apply.events import Applied, Listener, silent
from arena_gitops.apply.inspection import Inspection
from arena_gitops.apply.journal import Journal, unresolved
from arena_gitops.apply.lease import Claim, Grip
from arena_gitops.apply.parallel import while_patient
from arena_gitops.apply.wait import Clock, Patience
from arena_gitops.apply.wait import wait as wait_for
from arena_gitops.errors import BlockedError, StaleError, UnexpectedChangesError
from arena_gitops.evidence.contents import content_of
from arena_gitops.evidence.gather import gather
from arena_gitops.evidence.rows_hash import with_rows_hashes
from arena_gitops.plan import offline
from arena_gitops.plan.adoption import with_imports
from arena_gitops.plan.build import build
from arena_gitops.plan.compare import differences
from arena_gitops.plan.model import Action, CheckStatus, Plan
from arena_gitops.plan.policy import REMOVALS
from arena_gitops.plan.safety import ALLOW_INTERRUPT
from arena_gitops.plan.scope import Scope
from arena_gitops.plan.upstream import WHOLE
from arena_gitops.platforms.base import Platform, look
from arena_gitops.spec.wire import Owner
from arena_gitops.state import DesiredState, ObservedState

ALLOW_DIRTY = "dirty"
"""`--allow-dirty`: what is not committed may be applied."""
GRACE_S = 3.0
"""For what is on its way when somebody asks to stop; CI kills after about seven seconds."""
EXIT_BLOCKED = BlockedError.exit_code
EXIT_CHANGES = 2


class SystemClock:
    """The time of this machine."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


class Consent(StrEnum):
    """How somebody agreed to a plan."""

    APPROVED = "approved"
    """this very plan was seen: by a prompt, a plan file or its id"""
    UNSEEN = "unseen"
    """`--yes`: whatever the plan says"""


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside that a use-case may touch."""

    platform: Platform
    clock: Clock = field(default_factory=SystemClock)
    journal: Path | None = None
    """`<git dir>/arena/<target>.ndjson`; None: nothing is written down"""
    listener: Listener = silent
    stopping: Callable[[], bool] = field(default=lambda: False)
    claim: Claim = field(default_factory=Claim)
    """as whom an apply takes the lease of its stack, and how long it waits for it"""
    parallel: int = PARALLEL
    """calls that an apply makes at a time"""
    keep_going: bool = False
    """`--keep-going`: a check that fails holds up only what depends on it"""
    strict: bool = False
    """`--strict-serial`: nothing of the stack may have been written since the plan was made"""


def plan(
    world: World,
    desired: DesiredState,
    *,
    target: str,
    allow: frozenset[str] = frozenset(),
    scope: Scope = WHOLE,
    checks: Inspection | None = None,
) -> Plan:
    """Look at the platform and plan. Changes nothing; `checks` are recorded results to show."""
    return compare(world.platform, desired, target=target, allow=allow, scope=scope, checks=checks)[0]


def compare(
    platform: Platform,
    desired: DesiredState,
    *,
    target: str,
    allow: frozenset[str] = frozenset(),
    scope: Scope = WHOLE,
    checks: Inspection | None = None,
) -> tuple[Plan, ObservedState]:
    """The plan, and the state of the platform it was made of."""
    observed = look(platform, desired)
    evidence = gather(
        desired,
        with_imports(desired, observed),
        lambda digest, limit: platform.read_blob(digest, limit=limit),
    )
    evidence = evidence.with_scores(checks.rewards if checks else (), desired, observed)
    planned = build(desired, observed, target=target, allow=allow, scope=scope, evidence=evidence)
    return planned, observed


def plan_offline(
    desired: DesiredState,
    base: DesiredState | None,
    *,
    target: str,
    against: str,
    scope: Scope = WHOLE,
    checks: Inspection | None = None,
) -> Plan:
    """Plan against another commit instead of a platform: what its owner would be asked to do."""
    if base is not None:
        desired = replace(desired, policy=base.policy)  # whoever proposes a change does not set its limits
    observed = offline.assumed(base)
    stored = {} if base is None else {b.digest: b for r in base.resources.values() for b in r.blobs}
    found = gather(desired, observed, lambda digest, limit: content_of(stored[digest], limit))
    found = found.with_scores(checks.rewards if checks else (), desired, observed)
    planned = build(desired, observed, target=target, scope=scope, evidence=found)
    return offline.unasked(planned, against)


def apply(
    world: World,
    planned: Plan,
    desired: DesiredState,
    consent: Consent,
    *,
    allow: frozenset[str] = frozenset(),
) -> Applied:
    """Make a plan so, if nothing stands in its way. Returns once everything is submitted; see `wait`."""
    require_applyable(planned)
    _require_committed(planned, desired, allow)
    _require_interrupts_allowed(planned, consent, allow)
    _require_removals_allowed(planned, consent)
    note = world.journal.with_suffix(".lease") if world.journal else None
    grip = Grip(world.platform, desired.owner, world.claim, world.listener, note)

    def work() -> Applied:
        with grip.held(world.clock, world.stopping):
            journal = Journal(world.journal, world.clock.now)
            engine = Engine(
                world.platform,
                journal,
                world.listener,
                world.stopping,
                world.parallel,
                grip,
                strict=world.strict,
                keep_going=world.keep_going,
            )
            return engine.apply(planned, with_rows_hashes(desired, planned))

    try:
        return while_patient(work, world.stopping, GRACE_S)
    finally:
        grip.release()  # where the work was left behind, its lease is not


def was_cut_off(world: World) -> bool:
    """Whether an earlier apply was killed in the middle of a call; the next one says what came of it."""
    return world.journal is not None and bool(unresolved(world.journal))


def wait(world: World, planned: Plan, patience: Patience) -> ObservedState | None:
    """Wait until what the plan is about has got as far as asked; None when there was nothing to wait for."""
    return wait_for(world.platform, planned, patience, world.clock, world.listener)


def status(world: World, owner: Owner) -> ObservedState:
    """Everything the stack has on the platform."""
    return world.platform.observe(owner)


def require_applyable(planned: Plan) -> None:
    """Raise BlockedError with every reason why a plan may not be applied."""
    if planned.applyable:
        return
    reasons = [f"{c.address}: {c.message}" for c in planned.changes if c.action is Action.BLOCKED]
    reasons += [f"{c.name}: {c.message}" for c in planned.checks if c.status is CheckStatus.FAIL]
    raise BlockedError("the plan is blocked\n  " + "\n  ".join(reasons))


def require_same(planned: Plan, expected_id: str, approved: Plan | None = None) -> None:
    """Raise StaleError when the plan is not the one that was approved; says what differs where both are at hand."""
    if planned.plan_id == expected_id:
        return
    found = differences(approved, planned) if approved is not None else ()
    told = [f"\n  {d.address}: {d.op}" + (f", {d.why}" if d.why else "") for d in found]
    message = f"the plan is now {planned.plan_id}, approved was {expected_id}; review it again"
    raise StaleError(message + "".join(told))


def require_same_serial(planned: Plan, approved: Plan) -> None:
    """Raise StaleError when anything of the stack was written since the plan file was made (`--strict-serial`)."""
    if planned.serial != approved.serial:
        raise StaleError(
            "something of this stack was written since the plan file was made, though nothing that the plan touches; "
            "plan again, or leave out --strict-serial"
        )


def require_no_changes(planned: Plan) -> None:
    """Raise UnexpectedChangesError when there is anything to do (`--expect-no-changes`)."""
    if planned.has_changes:
        addresses = ", ".join(
            c.address for c in planned.changes if c.action.acts or c.action is Action.BLOCKED
        )
        raise UnexpectedChangesError(f"no changes were expected, but: {addresses}")


def require_settled(planned: Plan) -> None:
    """Raise BlockedError while something waits for a person (`--require-settled`)."""
    waiting = [f"{c.address}: {c.message}" for c in planned.changes if c.action is Action.PENDING]
    if waiting:
        raise BlockedError("not settled\n  " + "\n  ".join(waiting))


def exit_code(planned: Plan, *, detailed: bool) -> int:
    """Exit code of `arena plan`: 3 blocked, 2 changes (only when asked for in detail), else 0."""
    if not planned.applyable:
        return EXIT_BLOCKED
    return EXIT_CHANGES if detailed and planned.has_changes else 0


def _require_committed(planned: Plan, desired: DesiredState, allow: frozenset[str]) -> None:
    target = desired.targets.get(planned.target)
    local = planned.target == "local" if target is None else target.platform == "local"
    if local or ALLOW_DIRTY in allow or planned.scope.destroy:  # nothing of the repository is written
        return
    base = desired.provenance
    if base.dirty or base.commit is None:
        what = "the repository has uncommitted changes" if base.dirty else "the repository has no commit yet"
        raise BlockedError(f"{what}; commit them, or add --allow-dirty, to apply to {planned.target}")


def _require_interrupts_allowed(planned: Plan, consent: Consent, allow: frozenset[str]) -> None:
    stopped = [change.address for change in planned.interrupts if change.action.acts]
    if stopped and consent is not Consent.APPROVED and ALLOW_INTERRUPT not in allow:
        raise BlockedError(
            f"this stops running runs: {', '.join(stopped)}; approve this plan, or add --allow interrupt"
        )


def _require_removals_allowed(planned: Plan, consent: Consent) -> None:
    """Where nobody looks at the plan, many removals need a word of their own."""
    found = next((c for c in planned.checks if c.name == REMOVALS and c.status is CheckStatus.WARN), None)
    if found is not None and consent is not Consent.APPROVED:
        raise BlockedError(found.message)
