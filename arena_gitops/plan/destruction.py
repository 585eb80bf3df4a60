"""The plan of `arena destroy`: what is selected goes off the platform, whatever the repository says.

Like any plan it is shown first, bound by its id and kept from what is protected. What stays is said in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from arena_gitops.errors import Diagnostic, Severity
from arena_gitops.plan import limits, policy, safety, sharing, wording
from arena_gitops.plan.dependants import going_first, users
from arena_gitops.plan.matrix import Cause, outcome
from arena_gitops.plan.model import Action, Change, CheckOutcome, FingerprintChange, order
from arena_gitops.plan.phase import phase_of
from arena_gitops.plan.planner import idempotency_key, preconditions
from arena_gitops.plan.scope import Scope, selected
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredState, ObservedState

ASKED = "destroy_asked_for"
"""The reason of every change of such a plan."""
KEPT = Diagnostic(
    "runs, checkpoints and uploaded files stay on the platform; what is declared again takes up its result at 0 credits",
    "data-stays",
    severity=Severity.NOTE,
    hint="--purge deletes them for good",
)
PURGED = Diagnostic(
    "deleted for good: versions, runs, checkpoints and files of these, unless something else uses them; MLflow keeps "
    "its own runs, metrics and registered versions",
    "purge",
    severity=Severity.WARNING,
    hint="delete those in MLflow",
)


@dataclass(frozen=True, slots=True)
class Destruction:
    """Both sides, and what was asked for."""

    desired: DesiredState
    observed: ObservedState
    scope: Scope

    def changes(self) -> list[Change]:
        """One removal for each selected resource that the platform has."""
        asked = selected(self.scope, self.desired, self.observed) & self.observed.resources.keys()
        known = users(self.observed.resources)
        return [self._removed(address, asked, known) for address in sorted(asked, key=order)]

    def checks(self, changes: Iterable[Change], allow: frozenset[str]) -> list[CheckOutcome]:
        """Many removals at once: whoever sees the plan has seen them, whoever does not must say so."""
        removed = sum(change.action.removes for change in changes)
        return list(policy.many_removals(len(self.observed.resources), removed, allow, seen=True))

    def remarks(self, changes: Iterable[Change]) -> Iterator[Diagnostic]:
        """What stays, and what the next apply would bring back."""
        gone = [change.at for change in changes if change.action.removes]
        if not gone:
            return
        yield PURGED if self.scope.purge else KEPT
        declared = sorted(str(address) for address in gone if address in self.desired.resources)
        if declared:
            one = len(declared) == 1
            yield Diagnostic(
                f"the repository still declares {declared[0] if one else f'{len(declared)} of these'}; "
                f"the next apply makes {'it' if one else 'them'} anew",
                "still-declared",
                severity=Severity.WARNING,
                hint=f"remove {'its file' if one else 'their files'} too, to keep {'it' if one else 'them'} away",
            )

    def _removed(
        self, address: Address, asked: frozenset[Address], known: dict[Address, frozenset[Address]]
    ) -> Change:
        document = self.observed.resources[address]
        action = Action.DESTROY if self.scope.purge or address.kind == "deployment" else Action.RETIRE
        staying = sorted(known.get(address, frozenset()) - asked)
        others = tuple(
            other for other in sharing.on_the_run_of(document, self.observed) if other not in asked
        )
        stops = outcome(Cause.REMOVED, phase_of(document)).interrupts
        block = safety.destruction(document, staying)
        block = block or limits.stays(document, self.observed, purge=self.scope.purge)
        return Change(
            address=str(address),
            action=Action.BLOCKED if block else action,
            reason=block.reason if block else ASKED,
            message=block.message if block else wording.destroyed(document, purge=self.scope.purge),
            severity=0 if block else action.severity,
            preconditions=preconditions(Cause.REMOVED, document),
            depends_on=going_first(address, asked, known),
            fingerprint=FingerprintChange(old=document.fingerprint.run),
            interrupts=stops and not others,
            notes=(sharing.note(others),) if others and stops else (),
            idempotency_key=idempotency_key(self.desired.owner, address, None, document.etag),
        )
