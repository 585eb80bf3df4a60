"""What answers under a deployment's name right now: revision, adapter, model server. Read for every request.

`name` moves with every rollout; `name@3` is revision 3 for ever, as long as it is loaded. While a canary is watched, a
session belongs to one side for the whole time, by a hash of what names it; a request of no session is drawn.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.resource import BETWEEN, MAIN
from arena_gitops.spec.wire import DeploymentSpec, Provenance
from arena_runner.server.places import place_of
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services.deployments import residents
from arena_runner.server.store.tables import DeploymentStateRow, ResourceRow, RevisionRow, RunRow
from arena_runner.server.traffic import Name
from arena_runner.server.world import ModelServer, World
from arena_runner.serving.policy_protocol import POLICIES

SHORT = 12
"""characters of a commit that people read"""


@dataclass(frozen=True, slots=True)
class Served:
    """One revision that serves, and the model server it is loaded on."""

    deployment: str
    namespace: str
    revision: int
    checkpoint: str
    step: int
    run_id: str
    commit: str | None
    """of the repository that asked for the run"""
    adapter: str
    algorithm: str
    since: float
    server: ModelServer
    capacity: tuple[int, int]
    """requests at a time, and in the queue"""
    acts: bool = False
    """a policy, which answers with actions"""
    pinned: bool = False
    """asked for by its number"""

    @property
    def name(self) -> Name:
        """Whose request it is."""
        return self.namespace, self.deployment

    @property
    def label(self) -> str:
        """`name@revision step_N/mK run commit`: says in every answer what has spoken."""
        words = (
            f"{self.deployment}@{self.revision}",
            self.checkpoint,
            self.run_id,
            (self.commit or "")[:SHORT],
        )
        return " ".join(word for word in words if word)


def find(world: World, name: str, namespace: str = "main", talk: str | None = None) -> Served:
    """What serves under a name; 404 when there is no such thing, 503 while it does not serve.

    `talk` names the caller's session: all of it is answered by one revision, rollouts apart. `pr-7--words` is
    also what serves as `words` in namespace `pr-7`, if `main` has nothing of that name.
    """
    deployment, at, number = name.partition("@")
    with world.store.read() as session:
        state = session.get(DeploymentStateRow, (namespace, deployment))
        if state is None and namespace == MAIN and BETWEEN in deployment:
            namespace, _, deployment = deployment.partition(BETWEEN)
            state = session.get(DeploymentStateRow, (namespace, deployment))
        if state is None or state.state == "undeployed":
            text = f"deployment {deployment} does not exist{_known(session, namespace)}"
            raise RefusedError(404, "unknown-deployment", text)
        if at:
            return replace(_served(session, world, _numbered(session, state, number)), pinned=True)
        revision = _of_the_day(session, state, talk)
        if revision is None:
            raise RefusedError(503, "not-serving", f"deployment {name} is {state.state}: {state.message}")
        return _served(session, world, revision)


def find_words(world: World, name: str, namespace: str = "main", talk: str | None = None) -> Served:
    """What `find` gives, if it is a language model."""
    served = find(world, name, namespace, talk)
    if served.acts:
        raise RefusedError(400, "wrong-kind", f"deployment {served.deployment} is a policy: use get_action")
    return served


def everything(world: World, namespace: str = "main") -> list[Served]:
    """All language models that serve, by name."""
    with world.store.read() as session:
        states = _states(session, namespace)
        revisions = [revision for state in states if (revision := _serving(session, state))]
        ready = [item for item in revisions if _server(world, item) is not None]
        found = [_served(session, world, revision) for revision in ready]
        return [served for served in found if not served.acts]


def _served(session: Session, world: World, revision: RevisionRow) -> Served:
    server = _server(world, revision)
    if server is None:
        text = f"the model server of deployment {revision.deployment} is starting"
        raise RefusedError(503, "not-serving", text)
    run = session.get(RunRow, revision.run_id)
    source = Provenance.model_validate(run.provenance) if run else Provenance()
    algorithm = run.spec["manifest"]["algorithm"]["name"] if run else ""
    return Served(
        deployment=revision.deployment,
        namespace=revision.namespace,
        revision=revision.number,
        checkpoint=revision.checkpoint,
        step=revision.step,
        run_id=revision.run_id,
        commit=source.commit,
        adapter=revision.adapter,
        algorithm=str(algorithm),
        since=revision.created,
        server=server,
        capacity=_capacity(session, world, revision),
        acts=ModelRef.model_validate(revision.model).id == POLICIES,
    )


def _capacity(session: Session, world: World, revision: RevisionRow) -> tuple[int, int]:
    spec = _spec(session, revision.namespace, revision.deployment)
    wanted = spec.capacity if spec else None
    default = world.settings.model_server
    most = wanted.concurrent if wanted and wanted.concurrent is not None else default.concurrent
    queue = wanted.queue if wanted and wanted.queue is not None else default.queue
    return most, queue


def _spec(session: Session, namespace: str, deployment: str) -> DeploymentSpec | None:
    query = select(ResourceRow.spec).where(ResourceRow.kind == "deployment", ResourceRow.name == deployment)
    raw = session.scalar(query.where(ResourceRow.namespace == namespace))
    return DeploymentSpec.model_validate(raw) if raw else None


def _server(world: World, revision: RevisionRow) -> ModelServer | None:
    return world.links.model_servers.get(place_of(world, revision).key)


def _of_the_day(session: Session, state: DeploymentStateRow, talk: str | None) -> RevisionRow | None:
    """The revision that serves, or for its share of the sessions the canary."""
    query = select(RevisionRow).where(RevisionRow.namespace == state.namespace)
    query = query.where(RevisionRow.deployment == state.name)
    watched = (RevisionRow.number == state.revision) | (RevisionRow.state == "canary")
    found = {revision.number: revision for revision in session.scalars(query.where(watched))}
    serving = found.pop(state.revision, None)
    canary = max(found.values(), key=lambda revision: revision.number, default=None)
    if canary is None or serving is None:
        return serving
    spec = _spec(session, state.namespace, state.name)
    share = spec.rollout.share if spec else 0
    return canary if bucket(canary.adapter, talk) < share else serving


def bucket(adapter: str, talk: str | None) -> int:
    """0 to 99: the same for a session as long as the canary is the same; drawn where there is no session."""
    if talk is None:
        return secrets.randbelow(100)
    return int.from_bytes(hashlib.sha256(f"{adapter}\0{talk}".encode()).digest()[:8]) % 100


def _numbered(session: Session, state: DeploymentStateRow, number: str) -> RevisionRow:
    """One revision by its number, if it is loaded."""
    loaded = [_serving(session, state)]
    spec = _spec(session, state.namespace, state.name)
    if spec is None or spec.rollout.type != "recreate":
        loaded += residents(session, state.namespace, state.name)
    known = {str(revision.number): revision for revision in loaded if revision is not None}
    if number not in known:
        names = ", ".join(f"{state.name}@{known_number}" for known_number in sorted(known, key=int))
        text = f"revision {number} of deployment {state.name} is not loaded; loaded: {names or 'none'}"
        raise RefusedError(404, "unknown-revision", text)
    return known[number]


def _serving(session: Session, state: DeploymentStateRow) -> RevisionRow | None:
    """The revision that serves under a name."""
    query = select(RevisionRow).where(RevisionRow.namespace == state.namespace)
    return session.scalar(
        query.where(RevisionRow.deployment == state.name, RevisionRow.number == state.revision)
    )


def _states(session: Session, namespace: str) -> list[DeploymentStateRow]:
    query = (
        select(DeploymentStateRow)
        .where(DeploymentStateRow.namespace == namespace, DeploymentStateRow.state != "undeployed")
        .order_by(DeploymentStateRow.name)
    )
    return list(session.scalars(query))


def _known(session: Session, namespace: str) -> str:
    names = [state.name for state in _states(session, namespace)]
    return f"; there are: {', '.join(names)}" if names else "; none exists"
