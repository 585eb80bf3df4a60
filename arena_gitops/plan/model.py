"""The plan document: what apply will do and why, as frozen values with one canonical JSON form.

`plan_id` hashes the logical plan only, so that a review binds to *what happens* and not to file lines,
prices, clocks or the progress of a running run. Field names are published; add, never rename.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, JsonValue

from arena_gitops.plan.code import FileDiff
from arena_gitops.plan.diff import Op
from arena_gitops.plan.rows import DataDiff
from arena_gitops.plan.scope import Scope
from arena_gitops.plan.scores import ScoreDiff
from arena_gitops.spec.digest import canonical_json, sha256_json
from arena_gitops.spec.lifecycle import FieldClass
from arena_gitops.spec.resource import KINDS, Address, Frozen

FORMAT_VERSION: Literal["1.0"] = "1.0"

WAVES: dict[str, int] = {
    "project": 0,
    "dataset": 1,
    "environment": 1,
    "reward": 1,
    "experiment": 2,
    "deployment": 3,
}
"""Kind → the wave in which an apply touches it; retiring goes the other way."""


class Action(StrEnum):
    """What apply does to one resource. The last five change nothing: they are states worth seeing."""

    CREATE = "create"
    UPDATE = "update"
    NEW_VERSION = "new_version"
    PROMOTE = "promote"
    """a person has chosen another checkpoint: the apply takes the choice over"""
    RESUME = "resume"
    CAP = "cap"
    """a running run is given fewer steps; it goes on to there and ends, nothing is interrupted"""
    MIGRATE = "migrate"
    """a running run is stopped at its next checkpoint and goes on in another place"""
    REUSE = "reuse"
    MOVE = "move"
    """a rename: put under the new name what the old one has; the old one is retired as its own change"""
    IMPORT = "import"
    """taken over from the platform as it is; nothing is started"""
    RETIRE = "retire"
    DESTROY = "destroy"
    PENDING = "pending"
    HELD = "held"
    STALE = "stale"
    BLOCKED = "blocked"
    NOOP = "noop"

    @property
    def acts(self) -> bool:
        """Whether apply calls the platform for it."""
        return self not in {Action.PENDING, Action.HELD, Action.STALE, Action.BLOCKED, Action.NOOP}

    @property
    def removes(self) -> bool:
        """Whether the resource is gone from the stack afterwards."""
        return self in {Action.RETIRE, Action.DESTROY}

    @property
    def spends(self) -> bool:
        """Whether it can start paid training."""
        return self in {Action.CREATE, Action.NEW_VERSION, Action.RESUME, Action.MIGRATE}

    @property
    def severity(self) -> int:
        """Place in noop < update < … < destroy; of several reasons the most severe decides."""
        return SEVERITY[self]


SEVERITY: dict[Action, int] = {
    Action.NOOP: 0,
    Action.PENDING: 0,
    Action.HELD: 0,
    Action.STALE: 0,
    Action.BLOCKED: 0,
    Action.UPDATE: 1,
    Action.MOVE: 2,
    Action.IMPORT: 2,
    Action.CAP: 3,
    Action.RESUME: 4,
    Action.MIGRATE: 5,
    Action.REUSE: 6,
    Action.PROMOTE: 6,
    Action.CREATE: 7,
    Action.NEW_VERSION: 7,
    Action.RETIRE: 8,
    Action.DESTROY: 9,
}


class Range(Frozen):
    """Where the user wrote it: POSIX path relative to the repository root, 1-based line and column."""

    filename: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}"


class FieldChange(Frozen):
    """One field that differs, its class, and what that alone would lead to."""

    path: str
    cls: FieldClass = Field(serialization_alias="class", validation_alias=AliasChoices("class", "cls"))
    op: Op
    old: JsonValue = None
    """what the change starts from: what the platform has, or offline what the other commit says"""
    new: JsonValue = None
    remote: JsonValue = None
    """what the platform has now; None also where no platform was asked"""
    sensitive: bool = False
    """whether the values are names of secrets; a value of a secret is in no plan"""
    action: Action
    reason: str
    range: Range | None = None


class Cost(Frozen):
    """A ceiling, and an estimate where there is a basis; None means unknown and `basis` says what is missing."""

    rate: float | None = None
    """credits per hour while it runs or serves"""
    max: float | None = None
    """credits it can cost at most; None for a deployment (no end) and where something is unknown"""
    basis: str
    est: float | None = None
    """credits it will cost, by what runs of the same class have taken; None without any"""
    est_seconds: float | None = None
    est_basis: str = ""
    est_least: bool = False
    """whether it is only what the environment's own steps take"""


Verdict = Literal["ok", "tight", "no_fit", "unknown"]


class Fit(Frozen):
    """Need against memory, in GiB."""

    verdict: Verdict
    least_gib: float | None = None
    most_gib: float | None = None
    have_gib: float | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    """of the greatest need"""
    basis: str = ""
    """what the figures are of, or what is missing"""


class FingerprintChange(Frozen):
    """Run fingerprints before and after, and the parts of the new one."""

    old: str | None = None
    new: str | None = None
    data: str | None = None
    meta: str | None = None
    parents: str | None = None


class Preconditions(Frozen):
    """What must still hold when apply begins, else the plan is stale."""

    etag: str | None = None
    """None: the resource must not exist"""
    status: tuple[str, ...] = ()
    """run states in which this action is the right one; empty: any"""
    choice: str | None = None
    """digest of the checkpoint that a person's alias must still name"""


class Change(Frozen):
    """What happens to one resource, why, and under which conditions."""

    address: str
    previous_address: str | None = None
    """the old name of what is moved"""
    action: Action
    reason: str
    """stable code, e.g. `semantic_change`"""
    message: str = ""
    """the reason for people, one line"""
    severity: int = 0
    range: Range | None = None
    preconditions: Preconditions = Preconditions()
    depends_on: tuple[str, ...] = ()
    fields: tuple[FieldChange, ...] = ()
    fingerprint: FingerprintChange = FingerprintChange()
    cost: Cost | None = None
    fit: Fit | None = None
    """whether a run that would start fits into the memory of its place"""
    unknown: tuple[str, ...] = ()
    """what only apply can tell"""
    interrupts: bool = False
    """whether it stops a run that is running now"""
    idempotency_key: str | None = None
    notes: tuple[str, ...] = ()
    code: tuple[FileDiff, ...] = ()
    """files of a reward or environment, old and new"""
    data: DataDiff | None = None
    """rows of a dataset, old and new"""
    scores: ScoreDiff | None = None
    """what a reward paid and pays now, where `arena check --run` has recorded it"""
    mlflow_url: str | None = None
    """the page of its present run, or of the model whose checkpoint people choose"""

    @property
    def at(self) -> Address:
        """The address as a value."""
        return Address.parse(self.address)


class CheckStatus(StrEnum):
    """Verdict of a policy or safety check."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    WARN = "warn"
    FAIL = "fail"


class CheckOutcome(Frozen):
    """One policy or safety check of the whole plan."""

    name: str
    status: CheckStatus
    message: str = ""


class PlanCost(Frozen):
    """Totals over the changes."""

    unit: Literal["credits"] = "credits"
    max_new: float = 0.0
    """sum of all known ceilings"""
    rate_per_hour: float = 0.0
    """what newly served deployments cost per hour, as far as it is known"""
    unknown: int = 0
    """changes whose ceiling or rate is not known"""
    est_new: float | None = None
    """sum of the estimates; None unless every run has one"""
    running_saved: float = 0.0
    """what the runs that are stopped could still have cost, as far as it is known"""
    balance: float | None = None
    """credits that are left; None where the platform does not say"""
    declared_before: float = 0.0
    """what training everything once can cost, as far as it is known: what the platform has of what is looked at"""
    declared: float = 0.0
    """the same once the plan is applied"""
    declared_unknown: int = 0
    """experiments of these whose ceiling is not known"""


class Base(Frozen):
    """The commit the desired state was read from."""

    commit: str | None = None
    dirty: bool = False


class DriftEntry(Frozen):
    """One resource that is not as it should be."""

    address: str
    code: str
    """`run_stopped`, `run_failed`, `deployment_held`, `deployment_failed`, `missing`, `differs`, `not_in_repository`,
    `integrity`; of what could not be looked at: `unknown`"""
    message: str


class PlanDiagnostic(Frozen):
    """A remark about the repository that does not stop the plan."""

    severity: str
    code: str
    message: str
    hint: str = ""
    range: Range | None = None


class Plan(Frozen):
    """Everything `arena plan` knows."""

    format_version: Literal["1.0"] = FORMAT_VERSION
    kind: Literal["arena.plan"] = "arena.plan"
    plan_id: str
    mode: Literal["online", "offline", "destroy"] = "online"
    """offline: compared with another commit, no platform was asked; such a plan cannot be applied.
    destroy: what is selected goes off the platform, whatever the repository says"""
    against: str | None = None
    """what an offline plan is compared with: `git:REF`"""
    target: str
    platform: str
    lineage: str = ""
    serial: str = ""
    """of everything the stack had when the plan was made; `apply --strict-serial` wants it unmoved"""
    stack: str
    namespace: str
    base: Base = Base()
    scope: Scope = Scope()
    complete: bool = True
    """false where only a part of the stack was looked at; such a plan removes nothing"""
    applyable: bool
    summary: dict[str, int]
    cost: PlanCost = PlanCost()
    changes: tuple[Change, ...] = ()
    """sorted by (wave, kind, name); unchanged resources appear only when there is something to say"""
    drift: tuple[DriftEntry, ...] = ()
    """what happened to the platform beside an apply: runs stopped or failed, resources changed by hand"""
    unmanaged: int = 0
    """what commands have made in this namespace and no repository manages; never touched"""
    equivalent: tuple[tuple[str, str], ...] = ()
    """files (old and new digest) that only read differently; applying the plan means the same by it"""
    checks: tuple[CheckOutcome, ...] = ()
    diagnostics: tuple[PlanDiagnostic, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Whether apply would do anything, or is forbidden to."""
        return any(change.action.acts or change.action is Action.BLOCKED for change in self.changes)

    @property
    def interrupts(self) -> tuple[Change, ...]:
        """Changes that stop a running run."""
        return tuple(change for change in self.changes if change.interrupts)

    def to_json(self) -> bytes:
        """Canonical JSON: equal plans are equal bytes."""
        return canonical_json(self.model_dump(mode="json", by_alias=True)) + b"\n"

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read a plan document; raises pydantic's ValidationError when it is not one."""
        return cls.model_validate_json(data)


def order(address: Address) -> tuple[int, int, str]:
    """Sort key of a change: wave, kind, name."""
    return WAVES[address.kind], KINDS.index(address.kind), address.name


def plan_id(
    *,
    platform: str,
    stack: str,
    namespace: str,
    changes: tuple[Change, ...],
    checks: tuple[CheckOutcome, ...],
    purge: bool = False,
) -> str:
    """Digest of the logical plan: what will be done to what, under which preconditions, and what forbids it.

    States (pending, held, stale) and unchanged resources are left out: they change nothing, and a run that
    makes progress must not make every review void.
    """
    logical = [change for change in changes if change.action.acts or change.action is Action.BLOCKED]
    parts = [
        FORMAT_VERSION.partition(".")[0],
        platform,
        stack,
        namespace,
        [_logical(change) for change in sorted(logical, key=lambda c: order(c.at))],
        sorted(check.name for check in checks if check.status is CheckStatus.FAIL),
    ]
    return sha256_json([*parts, "purge"] if purge else parts)


def _logical(change: Change) -> list[Any]:
    return [
        change.address,
        change.action.value,
        change.reason if change.action is Action.BLOCKED else None,
        [[f.path, f.op.value, sha256_json(f.old), sha256_json(f.new)] for f in change.fields],
        change.fingerprint.new,
        change.idempotency_key,  # the whole content: a create has no fields, and a budget no fingerprint
        change.interrupts,
        [change.preconditions.etag, list(change.preconditions.status)],
    ]
