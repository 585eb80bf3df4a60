"""What a deployment of the in-memory platform serves: a standing choice over a run that has ended."""

from __future__ import annotations

from arena_gitops.spec.job import Checkpoint, RunStatus
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import DeploymentSpec, DeploymentStatus

FITNESS = frozenset({"fitness", "eval/reward"})


def resolved(
    address: Address, spec: DeploymentSpec, now: DeploymentStatus, status: RunStatus
) -> DeploymentStatus:
    """A standing choice over a run that has completed."""
    if spec.best is not None and spec.best.metric not in FITNESS:
        return _held(now, f"no checkpoint has {spec.best.metric}: only fitness is kept here")
    lowest = spec.best is not None and spec.best.mode == "min"
    chosen = _lowest(status) if lowest else _chosen(status, spec.checkpoint)
    if chosen is None:
        have = ", ".join(checkpoint.label for checkpoint in status.checkpoints) or "none"
        return _held(now, f"no checkpoint {spec.checkpoint}; there are: {have}")
    if (refusal := _refusal(spec, chosen)) is not None:
        return _held(now, refusal)
    if now.state == "serving" and now.digest == chosen.digest:
        return now
    return DeploymentStatus(
        state="serving",
        revision=now.revision + 1,
        run_id=status.run_id,
        checkpoint=chosen.label,
        digest=chosen.digest,
        url=f"memory:///i/{address.name}",
    )


def _lowest(status: RunStatus) -> Checkpoint | None:
    scored = [c for c in status.checkpoints if c.fitness is not None]
    return min(scored, key=lambda c: (c.fitness or 0.0, c.step, c.member), default=None)


def _chosen(status: RunStatus, checkpoint: str) -> Checkpoint | None:
    """`best`, `step_N` (newest at or before N, the fittest member) or `step_N/mK`."""
    if checkpoint == "best":
        return status.best
    step, _, member = checkpoint.removeprefix("step_").partition("/m")
    fitting = [
        c for c in status.checkpoints if c.step <= int(step) and (not member or c.member == int(member))
    ]
    newest = max((c.step for c in fitting), default=None)
    return max((c for c in fitting if c.step == newest), key=lambda c: c.fitness or 0.0, default=None)


def _refusal(spec: DeploymentSpec, chosen: Checkpoint) -> str | None:
    least = spec.gate.min if spec.gate else None
    if least is None or (chosen.fitness is not None and chosen.fitness >= least):
        return None
    return f"gate: {chosen.label} has {chosen.fitness}, at least {least:g} is wanted"


def waits(now: DeploymentStatus, message: str) -> DeploymentStatus:
    """Before anything is served it is pending; afterwards what serves goes on serving."""
    return now if now.revision else now.model_copy(update={"state": "pending", "message": message})


def _held(now: DeploymentStatus, message: str) -> DeploymentStatus:
    return now.model_copy(update={"state": "held", "message": message})
