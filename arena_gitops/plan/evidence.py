"""What planning is told about the insides of files, since it reads none itself.

`arena_gitops.evidence` gathers it, bounded in time and memory. Without it a plan is still right: every change of a
file is then a change of its content, and no diff is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from arena_gitops.plan.code import FileDiff
from arena_gitops.plan.cosmetic import Pair
from arena_gitops.plan.model import Change, PlanDiagnostic
from arena_gitops.plan.rows import DataDiff
from arena_gitops.plan.scores import ScoreDiff
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredState, ObservedState


@dataclass(frozen=True, slots=True)
class Evidence:
    """Findings by address."""

    equivalent: frozenset[Pair] = frozenset()
    """files, old and new digest, that behave the same"""
    code: Mapping[str, tuple[FileDiff, ...]] = field(default_factory=lambda: MappingProxyType({}))
    data: Mapping[str, DataDiff] = field(default_factory=lambda: MappingProxyType({}))
    scores: Mapping[str, ScoreDiff] = field(default_factory=lambda: MappingProxyType({}))
    remarks: tuple[PlanDiagnostic, ...] = ()
    """what was handed in and could not be used"""

    def shown_on(self, change: Change) -> Change:
        """The change with what was found about its files."""
        if not change.action.acts or change.action.removes:
            return change
        at = change.address
        found = {"code": self.code.get(at), "data": self.data.get(at), "scores": self.scores.get(at)}
        told = {name: value for name, value in found.items() if value}
        return change.model_copy(update=told) if told else change

    def with_scores(
        self, recorded: Sequence[ScoreDiff], desired: DesiredState, observed: ObservedState
    ) -> Evidence:
        """With recorded scores, as far as they are of the very contents that are compared."""
        fitting = {one.address: one for one in recorded if _fits(one, desired, observed)}
        outdated = [one.address for one in recorded if one.address not in fitting]
        remarks = tuple(
            PlanDiagnostic(
                severity="warning",
                code="outdated-checks",
                message=f"the recorded scores of {address} are of other contents and are not shown",
                hint="Record them again with: arena check --run -o checks.json",
            )
            for address in outdated
        )
        return replace(self, scores=fitting, remarks=(*self.remarks, *remarks))


def _fits(recorded: ScoreDiff, desired: DesiredState, observed: ObservedState) -> bool:
    address = Address.parse(recorded.address)
    resource, document = desired.resources.get(address), observed.resources.get(address)
    if resource is None or document is None:
        return False
    return recorded.new_files == resource.spec.get("files") and recorded.old_files == document.spec.get(
        "files"
    )


NO_EVIDENCE = Evidence()
