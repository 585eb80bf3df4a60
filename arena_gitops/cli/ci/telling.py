"""What a merged pull request is told of the apply of its plan: that it was done, refused, or done otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import click

from arena_gitops import app
from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.approval import Accept, Approval
from arena_gitops.cli.ci.sticky import open_github, upsert
from arena_gitops.cli.session import Session
from arena_gitops.errors import ArenaError
from arena_gitops.plan.model import Plan
from arena_gitops.report import notices
from arena_gitops.report.commands import Annotation
from arena_gitops.report.github import Place


@dataclass(frozen=True, slots=True)
class Teller:
    """Speaks in one pull request about the plan that was merged there."""

    actions: Actions
    approval: Approval
    place: Place

    @classmethod
    def of_approved(cls, session: Session, actions: Actions, place: Place) -> Teller:
        """For the plan that merging has approved; raises where nobody approved one."""
        return cls(actions, Approval.find(open_github(session, actions), actions, place), place)

    @classmethod
    def if_any(cls, session: Session, actions: Actions, place: Place) -> Teller | None:
        """The same for an apply by hand, which needs no pull request."""
        try:
            return cls.of_approved(session, actions, place)
        except ArenaError as error:
            session.say(f"no pull request is told about this apply: {error}")
            return None

    def require_approved(self, planned: Plan, accept: Accept) -> str | None:
        """A notice to write once a plan that differs was applied; raises StaleError where that is not accepted."""
        if self.approval.covers(planned):
            return None
        marker = self.approval.marker
        for line in notices.differences(marker, planned):
            click.echo(line)
        if self.approval.may_change_to(planned, accept):
            return notices.accepted(marker, planned, self.place, accept)
        self.refused(planned)
        app.require_same(planned, str(marker.plan_id))
        return None

    def refused(self, planned: Plan) -> None:
        """What is planned now is not what was approved: say in what it differs, and how to approve it."""
        body = notices.mismatch(self.approval.marker, planned, self.place)
        self.actions.summarise(body)
        self._notice(body)

    def moved(self, planned: Plan) -> None:
        """The world moved while the apply was under way; `planned` is what there is to do since."""
        self.actions.output(plan_id=planned.plan_id)
        if not self.approval.covers(planned):
            self.refused(planned)

    def by_hand(self, planned: Plan) -> str | None:
        """A notice for what somebody approved by its id, where it is not what the pull request shows."""
        if self.approval.covers(planned):
            return None
        return notices.reapproved(self.approval.marker, planned, self.place)

    def applied(self, planned: Plan, notice: str | None, *, by_hand: bool) -> None:
        """What is done is done: a comment that cannot be written is a warning, not a failed apply."""
        shown, url = self.approval.comment, self.actions.run_url
        body = notices.applied(shown.body or "", url)
        if by_hand and notice is not None:
            body = notices.superseded(shown.body or "", planned.plan_id, url)
        try:
            if notice is not None:
                self._notice(notice)
            if body != shown.body:
                self.approval.github.edit(shown.id, body)
        except ArenaError as error:
            message = f"applied, but the pull request could not be told: {error}"
            self.actions.annotate([Annotation("warning", "comment", message).render()])

    def _notice(self, body: str) -> None:
        """The one comment about what differs from what was approved."""
        key = notices.mismatch_key(self.place)
        upsert(self.approval.github, self.approval.number, body, lambda old: old.startswith(key))
