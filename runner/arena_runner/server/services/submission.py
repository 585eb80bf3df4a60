"""An experiment that a command submits: manifest and reward file become what a repository would have declared.

`submit` yields lines as it goes, so that whoever waits sees what is checked; the last one is the verdict.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.job import (
    DatasetInput,
    EnvironmentInput,
    JobInputs,
    ModelRef,
    RewardInput,
    RunState,
)
from arena_gitops.spec.manifest import Manifest, ManifestError, ParsedManifest, parse_manifest
from arena_gitops.spec.manifest.environment import GymEnvironment, OfflineEnvironment, TextEnvironment
from arena_gitops.spec.manifest.sections import TextNetwork
from arena_gitops.spec.stored import stored
from arena_gitops.spec.wire import CheckRequest, CheckResult, ExperimentSpec, ResourceDocument
from arena_runner.checks import run_checks
from arena_runner.checks.reward import SAMPLES
from arena_runner.checks.run import laid_out
from arena_runner.sandbox import RewardError, RewardPool, ScoreRow
from arena_runner.server import gymnasium_ids, kept_checks, profiles
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import datasets, environments, hub_rows, imperative, runs, secrets
from arena_runner.server.services.experiments import current_version
from arena_runner.server.services.remarks import Remark
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World

CLIENT_DEFAULTS: Mapping[tuple[str, str], Any] = {("algorithm", "top_k"): 50}
"""What the current client writes into every manifest, and this server does not do. Nobody can be told by it to
change what they never wrote, so it is a warning here; a repository's manifest that says so is refused."""

POLL_S = 0.2

FUNCTION = "reward"
"""What a reward function is called when the manifest's name for it is not in the file."""


@dataclass(frozen=True, slots=True)
class RewardFile:
    """The code that scores, as it came in."""

    name: str
    source: bytes


@dataclass(frozen=True, slots=True)
class Submission:
    """What a command asks for."""

    manifest: Any
    tier: str | None = None
    num_nodes: int = 1
    project: str | None = None
    name: str | None = None
    reward: RewardFile | None = None
    completion: str | None = None
    """a sample that the reward is asked about once"""


def submit(world: World, wanted: Submission) -> Iterator[Remark | CheckResult | ResourceDocument]:
    """Check everything, then start: remarks, verdicts, and at the end the experiment as it is stored.

    Raises:
        RefusedError: What is wrong, in one text; nothing has been started.
    """
    raw, dropped = _without_client_defaults(wanted.manifest)
    parsed = _parsed(raw)
    manifest = parsed.manifest
    with world.store.read() as session:
        if wanted.name:
            imperative.check_ours(imperative.find(session, "experiment", wanted.name))
        if wanted.project:
            imperative.get(session, "project", wanted.project)
        data = _dataset_row(session, manifest)
        environment = _environment(session, manifest)
    yield from (Remark(text, warning=True) for text in dropped)
    yield from _notes(parsed)
    yield from _placement(world, wanted, manifest)
    reward = _reward(world, wanted.reward, manifest) if wanted.reward else None
    inputs = JobInputs(
        dataset=datasets.of_row(data) if data else None, reward=reward, environment=environment
    )
    if data:
        yield from _rows(world, data)
    yield from _checked(world, wanted, manifest, inputs)
    parents = [Fingerprint.model_validate(data.fingerprint)] if data else []
    parents += [_fingerprint("reward", reward)] if reward else []
    parents += [_fingerprint("environment", environment)] if environment and environment.files else []
    yield _put(world, wanted, _spec(world, wanted, manifest, inputs), parents)


def _without_client_defaults(raw: Any) -> tuple[Any, list[str]]:
    said = []
    for (section, name), value in CLIENT_DEFAULTS.items():
        fields = raw.get(section) if isinstance(raw, dict) else None
        if isinstance(fields, dict) and fields.get(name) == value:
            raw = {**raw, section: {key: kept for key, kept in fields.items() if key != name}}
            said.append(f"{section}.{name}: {value} is the client's default and not acted on")
    return raw, said


def _notes(parsed: ParsedManifest) -> Iterator[Remark]:
    """One line for all that is not acted on: the client fills in every default, and none of them is a surprise."""
    idle = [note for note in parsed.notes if note.code == "not-acted-on"]
    yield from (Remark(str(note)) for note in parsed.notes if note not in idle)
    if idle:
        fields = ", ".join(".".join(map(str, note.path)) for note in idle)
        yield Remark(f"{len(idle)} fields are understood and not acted on: {fields}")


def _parsed(raw: Any) -> ParsedManifest:
    try:
        parsed = parse_manifest(raw)
    except ManifestError as problem:
        lines = "\n".join(f"  {one}" for one in problem.problems)
        raise RefusedError(422, "bad-manifest", f"the manifest is wrong:\n{lines}") from problem
    if parsed.refusals:
        lines = "\n".join(f"  {one}" for one in parsed.refusals)
        raise RefusedError(422, "no-room", f"this server cannot train that yet:\n{lines}")
    return parsed


def _dataset_row(session: Any, manifest: Manifest) -> ResourceRow | None:
    """`environment.dataset`, or else `environment.name`, as the published dialects have it."""
    environment = manifest.environment
    if not isinstance(environment, TextEnvironment):
        return None
    name = environment.dataset or environment.name
    if not name:
        message = "the manifest names no dataset: write environment.dataset (or environment.name)"
        raise RefusedError(422, "no-dataset", message)
    row = imperative.find(session, "dataset", name)
    if row is None:
        there = ", ".join(imperative.shown(r) for r in imperative.living(session, "dataset")) or "none"
        message = f"dataset {name!r} does not exist here; create it first (there are: {there})"
        raise RefusedError(422, "no-dataset", message)
    return row


def _environment(session: Any, manifest: Manifest) -> EnvironmentInput | None:
    """A custom environment of that name and version, else one that Gymnasium registers."""
    section = manifest.environment
    if not isinstance(section, GymEnvironment) or isinstance(section, OfflineEnvironment):
        return None
    written = section.env_config if isinstance(section.env_config, dict) else {}
    if imperative.find(session, "environment", section.name) is None:
        if section.name in gymnasium_ids.registered() or ":" in section.name or "/" in section.name:
            return EnvironmentInput(gym_id=section.name, env_config=dict(written))
        there = ", ".join(imperative.shown(r) for r in imperative.living(session, "environment")) or "none"
        message = (
            f"environment {section.name!r} is neither registered by Gymnasium nor was it sent here; "
            f"send it first (there are: {there})"
        )
        raise RefusedError(422, "no-environment", message)
    label = str(section.version) if section.version is not None else None
    source = environments.get(session, section.name, label).source
    chosen = section.entrypoint or source.entrypoint
    return source.model_copy(update={"env_config": {**source.env_config, **written}, "entrypoint": chosen})


def _rows(world: World, row: ResourceRow) -> Iterator[Remark]:
    """Wait a while for rows that are on their way; refuse a dataset that will have none."""
    name, source = imperative.shown(row), datasets.of_row(row)
    ready = datasets.readiness(world, row.name, source)
    if ready.state == hub_rows.PENDING:
        yield Remark(f"waiting for the rows of dataset {name!r} from the hub")
        deadline = time.monotonic() + world.settings.hub.wait_s
        while ready.state == hub_rows.PENDING and time.monotonic() < deadline:
            time.sleep(POLL_S)
            ready = datasets.readiness(world, row.name, source)
    if ready.state == hub_rows.PENDING:
        text = f"the rows of dataset {name!r} are still on their way; the run waits for them"
        yield Remark(text, warning=True)
    elif not ready.ready:
        raise RefusedError(422, "no-rows", f"dataset {name!r} cannot be trained on: {ready.message}")


def _placement(world: World, wanted: Submission, manifest: Manifest) -> Iterator[Remark]:
    """What this server does otherwise than asked."""
    _, other_tier = resolve_tier(wanted.tier, world.tiers)
    if other_tier:
        yield Remark(other_tier, warning=True)
    if wanted.num_nodes > 1:
        yield Remark(f"{wanted.num_nodes} nodes were asked for; this server trains on 1", warning=True)
    limit, steps = world.settings.limits.max_steps, manifest.training.max_steps
    if limit is not None and limit < steps:
        yield Remark(f"this server ends runs after {limit} of the {steps} steps asked for", warning=True)
    model = _model(manifest)
    mapped = world.settings.models.map.get(model.id) if model else None
    if model and mapped:
        yield Remark(f"this server trains {mapped} in place of {model.id}", warning=True)


def _reward(world: World, file: RewardFile, manifest: Manifest) -> RewardInput:
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", PurePosixPath(file.name.replace("\\", "/")).name)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py", name):
        name = "reward.py"
    environment = manifest.environment
    asked = environment.reward_fn_name if isinstance(environment, TextEnvironment) else None
    return RewardInput(
        address=f"reward/{imperative.slug(name.removesuffix('.py'))}",
        files={name: world.blobs.put(file.source)},
        entry=name,
        function=_function(file.source, name, asked),
    )


def _function(source: bytes, file: str, asked: str | None) -> str:
    """The manifest's name if the file defines it, else `reward`."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as problem:
        place = f"{file}:{getattr(problem, 'lineno', None) or 1}"
        raise RefusedError(422, "bad-reward", f"{place}: {problem}") from problem
    known = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    known |= {
        t.id for node in body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
    }
    for name in (asked, FUNCTION):
        if name and name in known:
            return name
    names = " or ".join(name for name in dict.fromkeys((asked, FUNCTION)) if name)
    message = f"{file} defines no function {names}; it has: {', '.join(sorted(known)) or 'none'}"
    raise RefusedError(422, "bad-reward", message)


def _checked(
    world: World, wanted: Submission, manifest: Manifest, inputs: JobInputs
) -> Iterator[Remark | CheckResult]:
    """Every verdict; one text with all that failed when something has."""
    address = f"experiment/{imperative.slug(wanted.name or 'experiment')}"
    with world.store.read() as session:  # rows of the hub are looked at too, if they are here
        dataset = hub_rows.pinned(session, inputs.dataset) if inputs.dataset else None
    seen = inputs.model_copy(update={"dataset": dataset})
    request = CheckRequest(address=address, manifest=manifest.normal(), inputs=seen)
    failed, results = [], []
    stored, known = secrets.names(world), profiles.known(world)
    for result in run_checks(request, world.blobs.existing, stored=stored, profiles=known):
        yield result
        results.append(result)
        if result.status == "fail":
            place = f"{result.file}:{result.line}: " if result.file and result.line else ""
            failed.append(f"{result.address} {result.name}: {place}{result.message}")
    kept_checks.keep(world, request, results)
    if failed:
        raise RefusedError(422, "check-failed", "nothing was started:\n" + "\n".join(failed))
    if wanted.completion is not None and inputs.reward is not None:
        yield _sampled(world, inputs.reward, wanted.completion)


def _sampled(world: World, reward: RewardInput, completion: str) -> Remark:
    row = ScoreRow(SAMPLES[0]["question"], SAMPLES[0]["answer"], completion)
    try:
        with laid_out(reward, world.blobs.existing) as files, RewardPool(reward, files) as pool:
            score = pool.score([row])[0]
    except RewardError as problem:
        message = f"nothing was started: the reward fails on the sample completion: {problem}"
        raise RefusedError(422, "check-failed", message) from problem
    return Remark(f"the sample completion scores {score.total:g}")


def _spec(world: World, wanted: Submission, manifest: Manifest, inputs: JobInputs) -> ExperimentSpec:
    return ExperimentSpec(
        labels=imperative.labels(wanted.name) if wanted.name else {},
        project=imperative.slug(wanted.project) if wanted.project else None,
        manifest=manifest.normal(),
        inputs=inputs,
        model=_model(manifest),
        tier=resolve_tier(wanted.tier, world.tiers)[0].id,
    )


def _model(manifest: Manifest) -> ModelRef | None:
    network = manifest.network
    return ModelRef(id=network.pretrained_model_name_or_path) if isinstance(network, TextNetwork) else None


def _fingerprint(kind: str, source: RewardInput | EnvironmentInput) -> Fingerprint:
    """As if it were declared in a repository: equal work is one run, whoever asks for it."""
    envelope: dict[str, Any] = {"description": "", "labels": {}, "owner": None, "lifecycle": {}}
    return fingerprint_of(kind, {**envelope, **source.model_dump(mode="json")}, [])


def _put(
    world: World, wanted: Submission, spec: ExperimentSpec, parents: list[Fingerprint]
) -> ResourceDocument:
    kept = stored(spec)
    identity = fingerprint_of("experiment", kept, parents).run
    name = wanted.name or _made_name(spec, identity)
    rerun = _rerun(world, name, identity)
    return imperative.put(world, "experiment", name, {**kept, "rerun": rerun}, parents=parents, rerun=rerun)


def _made_name(spec: ExperimentSpec, identity: str) -> str:
    dataset: DatasetInput | None = spec.inputs.dataset
    algorithm: Mapping[str, Any] = spec.manifest["algorithm"]  # type: ignore[assignment]  # a section
    about = dataset.address.partition("/")[2] if dataset else "run"
    return f"{str(algorithm['name']).lower()}-{about[:40]}-{identity.removeprefix('sha256:')[:8]}"


def _rerun(world: World, name: str, identity: str) -> int:
    """Submitting again what has stopped or failed asks for another try; anything else is the same once more."""
    with world.store.read() as session:
        row = imperative.find(session, "experiment", name)
        if row is None or Fingerprint.model_validate(row.fingerprint).run != identity:
            return 0
        run_id = current_version(session, row).run_id
        state = RunState(runs.get(session, run_id).state.state) if run_id else None
        return row.rerun + 1 if state in runs.UNFINISHED else row.rerun
