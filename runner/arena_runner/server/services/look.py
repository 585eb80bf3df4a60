"""One deployment as the store has it: what should serve, what does, what is on its way. Reading only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.serving import Rollout
from arena_gitops.spec.wire import DeploymentSpec
from arena_runner.server import places
from arena_runner.server.services import targets
from arena_runner.server.services.deployments import residents
from arena_runner.server.services.targets import Target, Waiting
from arena_runner.server.store.tables import DeploymentStateRow, ResourceRow, RevisionRow
from arena_runner.server.traffic import Name
from arena_runner.server.world import ModelServer, World
from arena_runner.serving.policy_protocol import POLICY_FILES

ON_ITS_WAY = ("loading", "canary")


@dataclass(frozen=True, slots=True)
class Look:
    """One deployment as it is seen now."""

    row: ResourceRow
    state: DeploymentStateRow
    serving: RevisionRow | None
    loading: RevisionRow | None
    """on its way: being loaded, or a canary"""
    residents: tuple[RevisionRow, ...]
    """loaded beside what serves, newest first"""
    target: Target | Waiting
    place: dict[str, Any] | None
    """where the target should be served, as a revision keeps it"""
    rollout: Rollout

    @property
    def name(self) -> Name:
        """Whose it is."""
        return self.row.namespace, self.row.name

    @property
    def held_at(self) -> int | None:
        """The revision a rollback named, as long as it holds."""
        return int(self.state.hold["revision"]) if self.state.hold else None

    @property
    def settled(self) -> bool:
        """Whether what should serve does."""
        return self._is_wanted(self.serving)

    def _is_wanted(self, revision: RevisionRow | None) -> bool:
        """Whether it is the one a rollback named, else the one that is asked for."""
        if revision is None:
            return False
        if self.held_at is not None:
            return revision.number == self.held_at
        if not isinstance(self.target, Target):
            return False
        asked = (self.target.run.id, self.target.checkpoint.digest, self.place)
        return (revision.run_id, revision.digest, revision.place) == asked

    @property
    def key(self) -> str:
        """What a failed rollout is not tried again for."""
        return f"{self.row.etag} {self.target.checkpoint.digest if isinstance(self.target, Target) else ''}"

    @property
    def is_loading(self) -> bool:
        """Whether what should serve is on its way."""
        return self._is_wanted(self.loading)

    @property
    def keeps_quiet(self) -> bool:
        """A serving deployment that waits for a run goes on serving; one that is held says so."""
        waits = isinstance(self.target, Waiting) and self.target.state == "pending"
        return self.serving is not None and waits

    @property
    def before(self) -> RevisionRow | None:
        """What the serving revision took over from, as long as that is loaded."""
        serving = self.serving
        taken_over = (
            r for r in self.residents if serving and r.state == "superseded" and r.number != serving.number
        )
        return next((r for r in taken_over if serving and r.updated >= serving.updated), None)

    @property
    def wanted(self) -> tuple[RevisionRow, ...]:
        """The revisions whose model servers should run."""
        return tuple(r for r in (self.serving, self.loading) if r is not None)

    @property
    def loaded(self) -> tuple[RevisionRow, ...]:
        """The revisions whose adapters should be on a model server that runs anyway."""
        return (*self.wanted, *(() if self.rollout.type == "recreate" else self.residents))

    def say(self, state: str, message: str) -> None:
        """Tell people, if it is news."""
        if (self.state.state, self.state.message) != (state, message):
            self.state.state, self.state.message = state, message

    @property
    def hold_message(self) -> str:
        """Why it serves something else than its file says."""
        hold = self.state.hold
        return (
            f"held at r{hold['revision']}, instead of r{hold['wanted']}: rolled back by {hold['by']}"
            if hold
            else ""
        )


def look_at(session: Session, world: World, namespace: str, name: str) -> Look | None:
    """None when there is no such deployment any more."""
    query = select(ResourceRow).where(ResourceRow.kind == "deployment", ResourceRow.namespace == namespace)
    row = session.scalar(query.where(ResourceRow.name == name, ~ResourceRow.retired))
    state = session.get(DeploymentStateRow, (namespace, name))
    if row is None or state is None:
        return None
    mine = select(RevisionRow).where(RevisionRow.namespace == namespace, RevisionRow.deployment == name)
    here = mine.where(RevisionRow.state.in_(ON_ITS_WAY) | (RevisionRow.number == state.revision))
    newest = list(session.scalars(here.order_by(RevisionRow.number.desc())))
    serving = next((revision for revision in newest if revision.number == state.revision), None)
    target, spec = targets.find(session, row, state, serving), DeploymentSpec.model_validate(row.spec)
    acts = isinstance(target, Target) and all(name in target.checkpoint.files for name in POLICY_FILES)
    return Look(
        row,
        state,
        serving,
        next((revision for revision in newest if revision.state in ON_ITS_WAY), None),
        tuple(residents(session, namespace, name)),
        target,
        places.chosen(world, spec, acts=acts),
        spec.rollout,
    )


def numbered(session: Session, namespace: str, name: str, number: int) -> RevisionRow | None:
    """A revision by its number."""
    query = select(RevisionRow).where(RevisionRow.namespace == namespace, RevisionRow.deployment == name)
    return session.scalar(query.where(RevisionRow.number == number))


def server_of(world: World, revision: RevisionRow) -> ModelServer | None:
    """The model server that holds it, if that answers now."""
    return world.links.model_servers.get(places.place_of(world, revision).key)
