"""The plan that was approved by merging, where it was shown, and whether another one may take its place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.sticky import is_about, last_of_ours
from arena_gitops.errors import BlockedError, StaleError
from arena_gitops.plan.model import Change, Plan
from arena_gitops.platforms.github import Comment, GitHub
from arena_gitops.report.github import Place
from arena_gitops.report.marker import Marker, signatures
from arena_gitops.report.notices import unapproved


class Accept(StrEnum):
    """What may differ from the approved plan without another approval."""

    NOTHING = "nothing"
    NO_COST = "no-cost"
    """what starts no training, costs nothing to serve, and stops or removes nothing"""
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Approval:
    """The plan that was merged, and where it was shown."""

    github: GitHub
    number: int
    comment: Comment
    marker: Marker

    @classmethod
    def find(cls, github: GitHub, actions: Actions, place: Place) -> Approval:
        """By the commit that was pushed; raises BlockedError or StaleError where nobody approved its plan."""
        pull = github.merged_pull(actions.sha)
        if pull is None:
            raise BlockedError(
                f"commit {actions.sha[:12]} came from no merged pull request, so nobody approved a plan; "
                "look at `arena plan` and run the apply workflow by hand with its id"
            )
        found = last_of_ours(github, pull.number, lambda body: is_about(Marker.find(body), place))
        marker = Marker.find(found.body or "") if found else None
        if found is None or marker is None or marker.plan_id is None:
            raise BlockedError(
                f"pull request #{pull.number} shows no plan for {place.target}, so nobody approved one; "
                "look at `arena plan` and run the apply workflow by hand with its id"
            )
        if marker.head != pull.head.sha:
            raise StaleError(
                f"the plan in pull request #{pull.number} was made for commit {marker.head[:12]}, merged was "
                f"{pull.head.sha[:12]}; run the apply workflow by hand with the id of the plan as it is now"
            )
        return cls(github, pull.number, found, marker)

    def covers(self, planned: Plan) -> bool:
        """Whether everything that is left to do was approved just so."""
        if not planned.has_changes or planned.plan_id == self.marker.plan_id:
            return True
        approved = self.marker.changes
        return (
            approved is not None
            and planned.applyable
            and all(approved.get(address) == found for address, found in signatures(planned).items())
        )

    def may_change_to(self, planned: Plan, accept: Accept) -> bool:
        """Whether what differs is accepted without another approval. What is forbidden never is."""
        if accept is Accept.NOTHING or not planned.applyable:
            return False
        return accept is Accept.ANY or all(map(_is_free, unapproved(self.marker, planned)))


def _is_free(change: Change) -> bool:
    if change.action.removes or change.interrupts:
        return False
    if change.at.kind == "experiment":
        return not change.action.spends
    cost = change.cost
    return cost is None or (cost.rate == 0 and not cost.max)  # a price that is not known is one
