"""What hosted Arena's protocol can do, as a table; and what of a resource it can not, in words for a plan.

`TABLE` is the documentation (docs/hosted.md has it as it stands here). `refused` stops a plan: what was asked for
would be something else there. `unheeded` is said and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from arena_gitops.platforms.arena_cloud.sent import ours
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredResource

REWARD_METRICS = frozenset({"eval/reward", "fitness"})
"""Gates that the figures of a checkpoint can answer."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    can: Literal["yes", "no", "partly"]
    how: str
    """what the adapter does, or what a plan says instead"""


TABLE: tuple[Row, ...] = (
    Row("make projects, datasets (CSV, parquet, hub), experiments", "yes", "created once, named by content"),
    Row("the same work again, a revert, a rename", "yes", "found by its name: nothing is started, 0 credits"),
    Row(
        "another version of an experiment",
        "yes",
        "submitted under the next name; the old run is stopped, unless `keep_old`",
    ),
    Row("stale experiments after new rows", "yes", "the name says which rows a version was trained on"),
    Row(
        "say what differs from the version before",
        "no",
        "the plan says *that* it differs: no content is kept there",
    ),
    Row("see that a reward differs in comments only", "no", "a new version, at its cost"),
    Row(
        "more `max_steps`",
        "partly",
        "an ended run is resumed; while one works: `pending`, the next apply resumes",
    ),
    Row(
        "fewer `max_steps`, `target_score`, another tier or number of nodes",
        "no",
        "not seen on what exists; the next version has it",
    ),
    Row("description, labels, owner of what exists", "no", "not stored there; no change is planned for them"),
    Row("try a failed or stopped run again", "yes", "`rerun:` submits it under another name"),
    Row(
        "deploy the best checkpoint, or `step_N`",
        "partly",
        "by the first apply after the run has ended: nobody waits there",
    ),
    Row(
        "`gate` by reward",
        "partly",
        "judged by the plan, where checkpoints have a fitness; `min_delta` is left out",
    ),
    Row("`gate` by another metric, `@alias`, `step_N/mK`", "no", "blocked"),
    Row("`strategy`, probes, revisions, `arena rollback`", "no", "left out, and said"),
    Row("undeploy", "no", "`leftovers` names what goes on serving until somebody stops it there"),
    Row("remove an experiment", "partly", "*forget*: a run at work is stopped, its record and files stay"),
    Row("delete anything", "no", "nothing is destroyed by an apply"),
    Row("`budget`, `retry`", "no", "nobody enforces them there: left out, and said beside the price"),
    Row(
        "credits that are left",
        "partly",
        "a plan may not cost more, where `user credits` answers a number or has one known word for it",
    ),
    Row("environments, start weights (`base`)", "no", "blocked: this adapter does not send them"),
    Row("rewards of several files, with requirements, network or secrets", "no", "blocked: one file is sent"),
    Row("rows of the hub at a `revision`", "no", "blocked: the protocol has no field for it"),
    Row("a base model at a `revision`, a `trainer`", "no", "blocked: the protocol has no field for them"),
    Row("`priority`, `region`", "no", "left out, and said"),
    Row("JSON lines", "no", "blocked: the protocol takes CSV and parquet"),
    Row(
        "checks before anything is made",
        "partly",
        "columns and syntax here; the rest when a submission begins, before it starts",
    ),
    Row(
        "a lease against two applies at a time",
        "no",
        "names and a look before each submission; seconds remain",
    ),
    Row("events and logs of a run", "no", "its page there has them"),
)


def markdown() -> str:
    """The table for people."""
    lines = ["| what | can it | how, or what a plan says |", "|---|---|---|"]
    lines += [f"| {row.what} | {row.can} | {row.how} |" for row in TABLE]
    return "\n".join(lines)


def refused(resource: DesiredResource) -> str | None:
    """Why this cannot be made there; None where it can."""
    reasons = [*_REFUSALS.get(resource.address.kind, _nothing)(resource.spec)]
    return "; ".join(reasons) or None


def unheeded(resource: DesiredResource) -> tuple[str, ...]:
    """What is written and will not be acted on."""
    spec = resource.spec
    match resource.address.kind:
        case "experiment":
            limits = [f"budget.{key}" for key, value in sorted((spec.get("budget") or {}).items()) if value]
            tries = ["retry"] if (spec.get("retry") or {}).get("max") else []
            where = [key for key in ("priority", "region") if spec.get(key)]
            return (*limits, *tries, *where, *ours(spec))
        case "deployment":
            gate = spec.get("gate") or {}
            keys = [key for key in ("strategy", "tier", "engine") if spec.get(key)]
            return (*keys, *(["gate.min_delta"] if gate.get("min_delta") is not None else []))
        case _:
            return ()


def _nothing(_spec: Mapping[str, Any]) -> Iterator[str]:
    return iter(())


def _environment(_spec: Mapping[str, Any]) -> Iterator[str]:
    yield "environments are not sent to this platform by this version"


def _dataset(spec: Mapping[str, Any]) -> Iterator[str]:
    if (spec.get("hf") or {}).get("revision"):
        yield (
            "this platform reads the hub's newest rows, not those of hf.revision; leave it out, or commit a file"
        )
    if spec.get("format") == "jsonl":
        yield "this platform takes rows as CSV or parquet, not as JSON lines"


def _reward(spec: Mapping[str, Any]) -> Iterator[str]:
    if len(spec["files"]) > 1:
        others = ", ".join(sorted(file for file in spec["files"] if file != spec["entry"]))
        yield f"a reward is one file on this platform; it imports {others}"
    if spec.get("requirements"):
        yield "a reward has no requirements of its own on this platform"
    if spec.get("secrets"):
        yield "this platform gives a reward no secrets"
    if spec.get("network") == "full":
        yield "whether a reward has a network is not for us to say on this platform; leave network out"


def _experiment(spec: Mapping[str, Any]) -> Iterator[str]:
    inputs = spec["inputs"]
    if inputs.get("base"):
        yield "start weights (base) cannot be given on this platform"
    if (inputs.get("environment") or {}).get("files"):
        yield "environments are not sent to this platform by this version"
    for part, rules in (("dataset", _dataset), ("reward", _reward)):
        if inputs.get(part):
            yield from rules(inputs[part])
    if (spec.get("model") or {}).get("revision"):
        yield "this platform takes a base model as it is on the hub today; leave model.revision out"
    if spec.get("trainer"):
        yield "which version trains is not for us to say on this platform; leave trainer out"
    if not spec.get("project"):
        yield "experiments are listed by project on this platform: declare one, or write `project` in arena.yaml"


def _deployment(spec: Mapping[str, Any]) -> Iterator[str]:
    checkpoint = str(spec.get("checkpoint") or "best")
    if checkpoint.startswith("@"):
        yield "nobody can mark a checkpoint with an alias on this platform; write best, or step_N"
    elif "/" in checkpoint:
        yield "members have no names on this platform; write best, or step_N"
    if spec.get("best"):
        yield "this platform chooses the best checkpoint by its own fitness; leave best out"
    metric = (spec.get("gate") or {}).get("metric", "eval/reward")
    if spec.get("gate") and metric not in REWARD_METRICS:
        yield f"this platform does not say {metric} of a checkpoint; a gate can only ask for eval/reward"


_REFUSALS = {
    "environment": _environment,
    "dataset": _dataset,
    "reward": _reward,
    "experiment": _experiment,
    "deployment": _deployment,
}


def twice_deployed(resource: DesiredResource, others: Mapping[Address, DesiredResource]) -> str | None:
    """A deployment there has the name of its experiment, so there is one of each."""
    if resource.address.kind != "deployment":
        return None
    experiment = resource.spec["experiment"]
    same = (a for a, r in others.items() if a.kind == "deployment" and r.spec["experiment"] == experiment)
    first = min(same)
    if resource.address == first:
        return None
    return f"an experiment is deployed once on this platform, and {first} does so"


if __name__ == "__main__":
    print(markdown())  # noqa: T201 - the table of docs/hosted.md
