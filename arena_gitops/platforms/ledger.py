"""The bookkeeping of the in-memory platform: records, versions, runs, and what deployments serve.

Called under the platform's lock; checks nothing that the platform has checked already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arena_gitops.platforms.scripted import RunScript, history
from arena_gitops.platforms.standing import resolved, waits
from arena_gitops.spec.digest import digests_in
from arena_gitops.spec.job import ModelRef, RunState, RunStatus
from arena_gitops.spec.resource import MAIN, Address
from arena_gitops.spec.wire import (
    DeploymentSpec,
    DeploymentStatus,
    KnownRun,
    Owner,
    PutResource,
    ResourceDocument,
    StoredEvent,
)

_WHY = {
    RunState.QUEUED: "is queued",
    RunState.VALIDATING: "is being validated",
    RunState.RUNNING: "is running",
    RunState.STOPPED: "was stopped",
    RunState.FAILED: "has failed",
}
USABLE = frozenset({RunState.QUEUED, RunState.VALIDATING, RunState.RUNNING, RunState.COMPLETED})


@dataclass(frozen=True, slots=True)
class Version:
    """One content an address has had."""

    number: int
    identity: str
    rerun: int
    run_id: str | None = None
    files: frozenset[str] = frozenset()
    """digests that its spec names"""


@dataclass(slots=True)
class Record:
    """One resource as its owner last put it."""

    address: Address
    owner: Owner
    body: PutResource
    serial: int
    changes: int
    version: Version
    served: DeploymentStatus | None = None

    @property
    def etag(self) -> str:
        """Moves with every write, never with the progress of a run."""
        return f"{self.serial}.{self.changes}"


@dataclass(slots=True)
class Run:
    """One run, the version it was made for, and its story."""

    status: RunStatus
    version: int
    rerun: int
    script: RunScript
    events: list[StoredEvent] = field(default_factory=list)
    purged: bool = False
    """its result is deleted; what it did stays in the books"""


@dataclass(slots=True)
class Ledger:
    """All records of all namespaces."""

    script: RunScript
    max_steps: int | None
    now: Callable[[], float]
    trainer: str = ""
    revisions: Mapping[str, str] = field(default_factory=dict)
    """base model → the commit of the hub that it is today"""
    runs: dict[str, Run] = field(default_factory=dict)
    _records: dict[tuple[str, Address], Record] = field(default_factory=dict)
    _versions: dict[tuple[str, Address], list[Version]] = field(default_factory=dict)
    _serial: int = 0

    def find(self, namespace: str, address: Address) -> Record | None:
        """The living record of an address."""
        return self._records.get((namespace, address))

    def documents(self, owner: Owner) -> dict[Address, ResourceDocument]:
        """Everything one owner has."""
        mine = (record for record in self._records.values() if record.owner == owner)
        return {record.address: self._document(record) for record in mine}

    def foreign(self, owner: Owner) -> dict[Address, str]:
        """Addresses of the namespace that somebody else has."""
        return {
            address: record.owner.stack
            for (namespace, address), record in self._records.items()
            if namespace == owner.namespace and record.owner != owner
        }

    def reusable(self) -> dict[tuple[str, int], KnownRun]:
        """Run fingerprint and rerun → a run whose result can be shared."""
        found: dict[tuple[str, int], KnownRun] = {}
        for run in self.runs.values():
            status = run.status
            key = status.fingerprint, run.rerun
            if (
                not run.purged
                and status.state in USABLE
                and (status.state is RunState.COMPLETED or key not in found)
            ):
                found[key] = _known(run)
        return found

    def put(self, address: Address, body: PutResource) -> ResourceDocument:
        """Write a record, its version, and the consequences for runs and deployments."""
        record = self.find(body.owner.namespace, address)
        before = None if record is None else record.body
        known = frozenset(self.runs)
        version = self._version(address, body, record.version if record else None)
        if record is None:
            self._serial += 1
            record = Record(address, body.owner, body, self._serial, 1, version)
            self._records[body.owner.namespace, address] = record
        else:
            if record.version.run_id != version.run_id and not self._spared(record, body):
                self._release(record, cause="replaced")
            record.body, record.version, record.changes = body, version, record.changes + 1
        if version.run_id in known and self._of_others(record):
            self._part(record, before)
        elif version.run_id in known:
            self._continue(self.runs[version.run_id], before, body)
        self._promote(body.owner.namespace)
        return self._document(record)

    def adopt(self, address: Address, body: PutResource) -> ResourceDocument:
        """Take a record over as it is: what its new owner says counts as the content of its version."""
        record = self._records[body.owner.namespace, address]
        if address.kind != "experiment":
            record.owner = body.owner
            return self.put(address, body)
        versions = self._versions[body.owner.namespace, address]
        identity, files = body.fingerprint.run, digests_in(body.spec)
        version = replace(record.version, identity=identity, rerun=body.rerun, files=files)
        versions[versions.index(record.version)] = version
        record.owner, record.body, record.version = body.owner, body, version
        record.changes += 1
        run = self.runs[str(version.run_id)]
        if run.status.state.ended:  # what is asked for counts as done
            steps = max(run.status.max_steps, self._steps(body))
            run.status = run.status.model_copy(update={"max_steps": steps})
        return self._document(record)

    def retire(self, record: Record) -> None:
        """Take a record out; versions and runs stay, what works for any of them is stopped."""
        del self._records[record.owner.namespace, record.address]
        for version in self._versions[record.owner.namespace, record.address]:
            self._release(replace(record, version=version), cause="retired")
        self._promote(record.owner.namespace)

    def purge(self, namespace: str, address: Address) -> frozenset[str]:
        """Delete the versions of an address that is retired; gives the files that nothing names any more."""
        gone = self._versions.pop((namespace, address), [])
        left = [version for versions in self._versions.values() for version in versions]
        for run_id in {version.run_id for version in gone} - {None, *(version.run_id for version in left)}:
            self._purge_run(self.runs[str(run_id)])
        return frozenset().union(*(v.files for v in gone)) - frozenset().union(*(v.files for v in left))

    def _purge_run(self, run: Run) -> None:
        result = {"checkpoints": (), "best": None, "message": "purged"}
        run.status, run.events, run.purged = run.status.model_copy(update=result), [], True

    def stop(self, run_id: str, *, cause: str) -> RunStatus:
        """Stop a run that has not ended."""
        run = self.runs[run_id]
        if not run.status.state.ended:
            message = "stopped by a user" if cause == "user" else f"its version was {cause}"
            self._move(run, run.status.model_copy(update={"state": RunState.STOPPED, "message": message}))
        return run.status

    def play(self, run_id: str, script: RunScript) -> RunStatus:
        """Put a run on another script and let it happen."""
        run = self.runs[run_id]
        run.script = script
        self._move(run, script.play(run.status))
        for namespace in {namespace for namespace, _ in self._records}:
            self._promote(namespace)
        return run.status

    def events(self, run_id: str) -> tuple[StoredEvent, ...]:
        """What was reported about a run."""
        return tuple(self.runs[run_id].events)

    def _document(self, record: Record) -> ResourceDocument:
        run = self.runs[record.version.run_id].status if record.version.run_id else None
        return ResourceDocument(
            kind=record.address.kind,
            name=record.address.name,
            etag=record.etag,
            owner=record.owner,
            spec=record.body.spec,
            fingerprint=record.body.fingerprint,
            version=record.version.number,
            run=run,
            deployment=record.served,
            provenance=record.body.provenance,
        )

    def _version(self, address: Address, body: PutResource, current: Version | None) -> Version:
        """The version of this content: an earlier one if the address had it before, else the next number."""
        versions = self._versions.setdefault((body.owner.namespace, address), [])
        trained = address.kind == "experiment"
        identity = body.fingerprint.run if trained else body.fingerprint.data
        for index, version in enumerate(versions):
            if (version.identity, version.rerun) == (identity, body.rerun):
                return self._revived(versions, index) if trained and version != current else version
        number = len(versions) + 1
        run_id = self._run_for(address, body, number) if trained else None
        versions.append(Version(number, identity, body.rerun, run_id, digests_in(body.spec)))
        return versions[-1]

    def _revived(self, versions: list[Version], index: int) -> Version:
        """A version that returns: with its own run, unless others have made a better one since."""
        version = versions[index]
        known = self.reusable().get((version.identity, version.rerun))
        if known is not None and self.runs[str(version.run_id)].status.state not in USABLE:
            versions[index] = replace(version, run_id=known.run_id)
        return versions[index]

    def _run_for(self, address: Address, body: PutResource, version: int) -> str:
        known = self.reusable().get((body.fingerprint.run, body.rerun))
        return self._new_run(address, body, version) if known is None else known.run_id

    def _new_run(self, address: Address, body: PutResource, version: int) -> str:
        run_id = f"r_{len(self.runs) + 1:04d}"
        status = RunStatus(
            run_id=run_id,
            experiment=address.name,
            fingerprint=body.fingerprint.run,
            state=RunState.QUEUED,
            max_steps=self._steps(body),
            model=self._model(body),
            trainer=self.trainer,
        )
        self.runs[run_id] = Run(status, version, body.rerun, self.script)
        self._move(self.runs[run_id], self.script.play(status))
        return run_id

    def _model(self, body: PutResource) -> ModelRef | None:
        """The base model that a run keeps to: as it was pinned, or as it is today."""
        if body.spec.get("model") is None:
            return None
        asked = ModelRef.model_validate(body.spec["model"])
        return asked if asked.revision else ModelRef(id=asked.id, revision=self.revisions.get(asked.id))

    def _continue(self, run: Run, before: PutResource | None, body: PutResource) -> None:
        """More steps, time or target, another tier, or the return of its version lets an ended run go on."""
        status, steps = run.status, self._steps(body)
        raised = steps > status.max_steps
        if raised:
            run.status = status = status.model_copy(update={"max_steps": steps})
        elif steps < status.max_steps and not status.state.ended and self._alone(run):
            ended = {"state": RunState.COMPLETED} if 0 < steps <= status.step else {}
            run.status = status = status.model_copy(update={"max_steps": steps, **ended})
        returned = before is None or before.fingerprint.run != body.fingerprint.run
        loosened = before is not None and _loosened(before, body)
        further = before is not None and _further(before, body) and status.step < steps
        unfinished = status.state in {RunState.STOPPED, RunState.FAILED}
        if status.state is RunState.RUNNING and before is not None and _moved(before, body):
            self._move(run, run.script.play(status))  # another segment, in the other place
        if status.state.ended and (raised or further or (unfinished and (returned or loosened))):
            self._move(run, run.script.play(status.model_copy(update={"state": RunState.QUEUED})))

    def _spared(self, record: Record, body: PutResource) -> bool:
        """Whether the run that is replaced has begun, and may come to its end."""
        run_id = record.version.run_id
        return _keeps_old(body) and run_id is not None and self.runs[run_id].status.segments > 0

    def _alone(self, run: Run) -> bool:
        """Whether one experiment at most is trained by it."""
        return sum(r.version.run_id == run.status.run_id for r in self._records.values()) <= 1

    def _of_others(self, record: Record) -> bool:
        """Whether its run trains what it may use and not change: of another stack or namespace."""
        mine = record.owner
        for other in self._records.values():
            own = mine.namespace in {other.owner.namespace, MAIN}
            if other.version.run_id == record.version.run_id and (other.owner.stack != mine.stack or not own):
                return True
        return False

    def _part(self, record: Record, before: PutResource | None) -> None:
        """A run of its own for what wants more than the run of others is."""
        run = self.runs[str(record.version.run_id)]
        loosened = before is not None and _loosened(before, record.body)
        further = (
            before is not None and _further(before, record.body) and run.status.step < run.status.max_steps
        )
        unfinished = run.status.state in {RunState.STOPPED, RunState.FAILED}
        if self._steps(record.body) > run.status.max_steps or further or (unfinished and loosened):
            run_id = self._new_run(record.address, record.body, record.version.number)
            versions = self._versions[record.owner.namespace, record.address]
            versions[versions.index(record.version)] = replace(record.version, run_id=run_id)
            record.version = replace(record.version, run_id=run_id)

    def _release(self, record: Record, *, cause: str) -> None:
        """Stop the run of a version that nobody uses any more."""
        run_id = record.version.run_id
        me = record.owner.namespace, record.address
        used = any(other.version.run_id == run_id for at, other in self._records.items() if at != me)
        if run_id is not None and not used:
            self.stop(run_id, cause=cause)

    def _move(self, run: Run, after: RunStatus) -> None:
        events = history(run.status, after, first_seq=len(run.events) + 1, now=self.now())
        segment = max(after.segments - 1, 0)
        run.events += [StoredEvent(index=event.seq, segment=segment, event=event) for event in events]
        run.status = after

    def _steps(self, body: PutResource) -> int:
        manifest: Any = body.spec.get("manifest", {})
        wanted = int(manifest.get("training", {}).get("max_steps", 0))
        return wanted if self.max_steps is None else min(wanted, self.max_steps)

    def _promote(self, namespace: str) -> None:
        """Resolve every standing choice of a namespace, as the server's controller would."""
        for (where, address), record in self._records.items():
            if where == namespace and address.kind == "deployment":
                record.served = self._serving(record)

    def _serving(self, record: Record) -> DeploymentStatus:
        spec = DeploymentSpec.model_validate(record.body.spec)
        now = record.served or DeploymentStatus(state="pending")
        experiment = self.find(record.owner.namespace, Address("experiment", spec.experiment))
        if spec.checkpoint.startswith("@"):
            message = f"waiting for alias {spec.checkpoint[1:]} on {spec.experiment}"
            return now.model_copy(update={"message": message}) if now.revision == 0 else now
        if experiment is None or experiment.version.run_id is None:
            return waits(now, f"there is no experiment {spec.experiment}")
        status = self.runs[experiment.version.run_id].status
        if status.state is not RunState.COMPLETED:
            return waits(now, f"v{experiment.version.number} {_WHY[status.state]}")
        return resolved(record.address, spec, now, status)


def _known(run: Run) -> KnownRun:
    status = run.status
    return KnownRun(
        run_id=status.run_id,
        fingerprint=status.fingerprint,
        experiment=status.experiment,
        version=run.version,
        state=status.state.value,
        fitness=status.best.fitness if status.best else None,
        max_steps=status.max_steps,
        rerun=run.rerun,
    )


def _keeps_old(body: PutResource) -> bool:
    """Whether a run at work comes to its end beside the new version."""
    lifecycle: Any = body.spec.get("lifecycle") or {}
    return bool(lifecycle.get("replace_policy") == "keep_old")


def _moved(before: PutResource, body: PutResource) -> bool:
    """Whether a run got another place."""
    place = ("tier", "num_nodes", "region", "priority")
    return any(before.spec.get(key) != body.spec.get(key) for key in place)


def _loosened(before: PutResource, body: PutResource) -> bool:
    """Whether an unfinished run got another place, or more time or credits."""
    old, new = before.spec.get("budget") or {}, body.spec.get("budget") or {}
    return _moved(before, body) or any(_raised(old, new, key) for key in ("max_runtime_s", "max_credits"))


def _further(before: PutResource, body: PutResource) -> bool:
    """Whether a target that may have ended a run was raised."""
    return _raised(_training(before), _training(body), "target_score")


def _training(body: PutResource) -> Any:
    manifest: Any = body.spec.get("manifest", {})
    return manifest.get("training", {})


def _raised(old: Any, new: Any, key: str) -> bool:
    return float(new.get(key) or "inf") > float(old.get(key) or "inf")
