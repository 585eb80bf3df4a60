"""Loading a revision's adapter and making sure that what was loaded is what was trained.

A policy is loaded by its files' digests, and gives one real action. Four questions for an adapter: is it the same base model, does the model server prove that the name answers by the weights the trainer
recorded (`arena_runner.serving.proof`), do they give the recorded completion the recorded probabilities, does one real
generation come back.
"""

from __future__ import annotations

import json
from typing import Any

from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.wire import ExperimentSpec
from arena_runner.server.model_servers import AdapterLine, RolloutError
from arena_runner.server.services import runs
from arena_runner.server.store.tables import RevisionRow
from arena_runner.server.world import World
from arena_runner.serving.policy_protocol import POLICIES, POLICY_FILES

ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")
NOTE = "arena.json"
"""What the trainer wrote beside the adapter (`arena_runner.checkpoint`)."""

LOGPROB_TOLERANCE = 0.1
"""Mean difference in nats; bf16 and another packing stay far below, other weights do not."""

PROMPT = "Hello"


def load(world: World, line: AdapterLine, revision: RevisionRow) -> None:
    """Give the adapter to the model server; doing it twice is the same as once."""
    acts = _acts(revision)
    wanted = POLICY_FILES if acts else ADAPTER_FILES
    lacking = [name for name in wanted if name not in revision.files]
    if lacking:
        raise RolloutError(f"{revision.checkpoint} has no {' and no '.join(lacking)}")
    digests = {name: str(revision.files[name]) for name in wanted}
    files = {name: (world.blobs.path(digest), digest) for name, digest in digests.items()}
    if acts:
        line.load_policy(revision.adapter, files)
        return
    line.load(revision.adapter, files, _template(world, revision))


def probe(world: World, line: AdapterLine, revision: RevisionRow) -> None:
    """Raise RolloutError unless the loaded adapter answers as the trained one would."""
    if _acts(revision):
        line.act_once(revision.adapter)
        return
    note = _note(world, revision)
    trained_on, served_on = note.get("base_digest"), line.base_digest()
    if trained_on is not None and trained_on != served_on:
        raise RolloutError(f"it was trained on a base with digest {trained_on}; here is {served_on}")
    line.prove(revision.adapter, note.get("adapter_digest"))
    if recorded := note.get("probe"):
        _compare(line, revision, recorded)
    if line.generate(revision.adapter, PROMPT) < 1:
        raise RolloutError("the probe's generation came back empty")


def probe_again(world: World, line: AdapterLine, revision: RevisionRow) -> None:
    """The same for what this process has proved before: it lies there as it did, and still answers."""
    if _acts(revision):
        line.act_once(revision.adapter)
        return
    digest = _note(world, revision).get("adapter_digest")
    if line.prove(revision.adapter, digest, again=True, prompt=PROMPT)["tokens"] < 1:
        raise RolloutError("the probe's generation came back empty")


def _acts(revision: RevisionRow) -> bool:
    return ModelRef.model_validate(revision.model).id == POLICIES


def _compare(line: AdapterLine, revision: RevisionRow, recorded: dict[str, Any]) -> None:
    expected = [float(value) for value in recorded["logprobs"]]
    if not expected:
        return
    found = line.logprobs(revision.adapter, recorded["prompt_ids"], recorded["token_ids"])
    off = sum(abs(a - b) for a, b in zip(expected, found, strict=True)) / len(expected)
    if not off <= LOGPROB_TOLERANCE:
        message = f"the loaded weights differ from the trained ones by {off:.3g} nats a token"
        raise RolloutError(f"{message} (at most {LOGPROB_TOLERANCE:g})")


def _note(world: World, revision: RevisionRow) -> dict[str, Any]:
    digest = revision.files.get(NOTE)
    if digest is None:
        return {}
    note: dict[str, Any] = json.loads(world.blobs.existing(str(digest)).read_text("utf-8"))
    return note


def _template(world: World, revision: RevisionRow) -> Any:
    """The prompt template of the experiment: a served prompt is rendered as in training."""
    with world.store.read() as session:
        spec = ExperimentSpec.model_validate(runs.get(session, revision.run_id).run.spec)
    environment = spec.manifest.get("environment")
    return environment.get("prompt_template") if isinstance(environment, dict) else None
