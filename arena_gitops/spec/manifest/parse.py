"""From a document of any published dialect to a `Manifest`, or to every problem in it.

canonical names → overrides → older values and defaults → each section → rules across sections → remarks.
Sections are validated one by one, so that an unreadable one hides no problem of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from arena_gitops.errors import InvalidDocumentError, Problem
from arena_gitops.spec.algorithms import ALGORITHMS, knobs_for
from arena_gitops.spec.classic_knobs import ClassicKnobs
from arena_gitops.spec.knobs import Knobs, OpaqueKnobs
from arena_gitops.spec.manifest import remarks, rewrite, rules
from arena_gitops.spec.manifest.dialects import Canonical, canonical, is_oldest
from arena_gitops.spec.manifest.environment import ENVIRONMENTS
from arena_gitops.spec.manifest.model import Manifest
from arena_gitops.spec.manifest.names import PUBLISHED, Published, canonical_name
from arena_gitops.spec.manifest.network import ClassicNetwork, DeferredNetwork
from arena_gitops.spec.manifest.sections import (
    ClassicTraining,
    PrioritisedReplay,
    ReplayBuffer,
    RolloutBuffer,
    TextNetwork,
    Training,
)
from arena_gitops.spec.numbers import shown
from arena_gitops.spec.population import ClassicMutation, MultiFrequency, Mutation, Tournament
from arena_gitops.spec.problems import parse, suggestion

M = TypeVar("M", bound=BaseModel)
MOST_KEPT = 1 << 10
_KEPT: dict[tuple[type[BaseModel], str], BaseModel] = {}

ManifestProblem = Problem
ManifestNote = Problem

_SECTION_NAMES = ("algorithm", "environment", "training", "mutation", "selection", "network", "replay_buffer")


class ManifestError(InvalidDocumentError):
    """The manifest is wrong; `problems` says everything that is."""


@dataclass(frozen=True, slots=True)
class ParsedManifest:
    """A manifest in normal form, with what people should know about it."""

    manifest: Manifest
    notes: tuple[ManifestNote, ...] = ()
    """fields without effect and defaults worth a word; the run is what its author meant"""
    refusals: tuple[ManifestProblem, ...] = ()
    """what has no room yet, by name: the plan must refuse to train it"""


@dataclass(slots=True)
class _Reading:
    """One manifest being read: the document and the problems found so far, canonical paths."""

    document: Canonical
    problems: list[Problem] = field(default_factory=list)

    def section(self, model: type[M], name: str) -> M | None:
        """Validate one section; its problems are collected. One that was valid before is that very one again."""
        raw = self.document.sections.get(name)
        try:
            return kept(model, repr(raw), lambda: parse(model, raw, at=(name,)))
        except InvalidDocumentError as error:
            self.problems.extend(error.problems)
            return None


def kept(model: type[M], text: str, made: Callable[[], M]) -> M:
    """What was made of these very words before; a sweep of thousands of experiments differs in a line of each."""
    found = _KEPT.get((model, text))
    if isinstance(found, model):
        return found
    if len(_KEPT) >= MOST_KEPT:
        _KEPT.clear()
    section = made()
    _KEPT[model, text] = section
    return section


def parse_manifest(
    raw: object,
    *,
    registered: frozenset[str] = ALGORITHMS,
    overrides: Mapping[str, Any] | None = None,
) -> ParsedManifest:
    """Read a training manifest; raises ManifestError with every problem.

    Args:
        raw: the document as loaded, in any published dialect or in normal form.
        registered: algorithms whose knobs are checked; others stay opaque.
        overrides: an experiment's `set:`, by dotted path; they win.
    """
    if not isinstance(raw, Mapping):
        raise ManifestError([Problem((), f"expected a mapping, got {shown(raw)}", "invalid-value")])
    if is_oldest(raw):
        message = "the INIT_HP dialect of AgileRL up to 2.7 is not read"
        hint = "write algorithm:, environment:, training:, mutation: and network: sections"
        raise ManifestError([Problem((), message, "dialect", hint)])
    document = canonical(raw)
    rewrite.override(document, overrides or {})
    reading = _Reading(document, document.problems)
    manifest = _manifest(reading, registered)
    if manifest is None or reading.problems:
        raise ManifestError([document.place(problem) for problem in reading.problems])
    hpo = ("training", "hpo")
    written = hpo in document.written or hpo in document.overrides
    notes, refusals = remarks.of(manifest, hpo_written=written)
    return ParsedManifest(
        manifest,
        notes=tuple(document.place(note) for note in notes),
        refusals=tuple(document.place(refusal) for refusal in refusals),
    )


def _manifest(reading: _Reading, registered: frozenset[str]) -> Manifest | None:
    _check_section_names(reading)
    algorithm = _published(reading, registered)
    if algorithm is None:
        return None
    reading.document.section("algorithm")["name"] = algorithm.name
    rewrite.modernise(reading.document, algorithm)
    rewrite.fill(reading.document, algorithm)
    classic = algorithm.family == "gym" and algorithm.name in registered
    sections = {
        "algorithm": _knobs(reading, algorithm.name, registered),
        "environment": _environment(reading, algorithm),
        "training": reading.section(ClassicTraining if classic else Training, "training"),
        "mutation": reading.section(ClassicMutation if classic else Mutation, "mutation"),
        "selection": _selection(reading),
        "network": _network(reading, algorithm),
        "replay_buffer": _buffer(reading, algorithm),
    }
    if reading.problems:
        return None
    manifest = Manifest.model_construct(None, **sections)
    reading.problems.extend(rules.broken(manifest))
    return manifest


def _check_section_names(reading: _Reading) -> None:
    for name in reading.document.sections:
        if name not in _SECTION_NAMES:
            hint = suggestion(str(name), (*_SECTION_NAMES, "tournament_selection", "selection_strategy"))
            reading.problems.append(Problem((name,), f"unknown section {name!r}", "unknown-key", hint))
    for name in ("algorithm", "environment"):
        if not isinstance(found := reading.document.sections.get(name), dict):
            what = (
                f"section {name!r} is missing" if found is None else f"expected a mapping, got {shown(found)}"
            )
            reading.problems.append(Problem((name,) if found else (), what, "missing-key"))


def _published(reading: _Reading, registered: frozenset[str]) -> Published | None:
    section = reading.document.section("algorithm")
    if not section:
        return None
    written = section.get("name")
    if not isinstance(written, str):
        message = "'name' is missing" if written is None else f"expected text, got {shown(written)}"
        path = ("algorithm",) if written is None else ("algorithm", "name")
        reading.problems.append(Problem(path, message, "missing-key", "the algorithm, for example GRPO"))
        return None
    name = canonical_name(written)
    if name == "PPO" and section.get("recurrent") is True:
        name = "Recurrent PPO"
    if name is not None:
        return PUBLISHED[name]
    if written in registered:
        classic = issubclass(knobs_for(written) or Knobs, ClassicKnobs)
        return (
            Published(written, "gym", 10_000, "gym") if classic else Published(written, "text", 20, "rollout")
        )
    hint = suggestion(written, {*PUBLISHED, *registered})
    problem = Problem(("algorithm", "name"), f"unknown algorithm {written!r}", "unknown-algorithm", hint)
    reading.problems.append(problem)
    return None


def _knobs(reading: _Reading, name: str, registered: frozenset[str]) -> Knobs | OpaqueKnobs | None:
    model = knobs_for(name) if name in registered else None
    if model is None:
        return reading.section(OpaqueKnobs, "algorithm")
    return reading.section(model, "algorithm")


def _environment(reading: _Reading, algorithm: Published) -> BaseModel | None:
    kind = reading.document.section("environment").get("env_type")
    model = ENVIRONMENTS.get(kind) if isinstance(kind, str) else None
    if kind == algorithm.env_type and model is not None:
        return reading.section(model, "environment")
    message = f"{algorithm.name} trains on env_type {algorithm.env_type!r}, got {shown(kind)}"
    reading.problems.append(Problem(("environment", "env_type"), message, "invalid-value"))
    return None


def _selection(reading: _Reading) -> BaseModel | None:
    strategy = reading.document.section("selection").get("strategy")
    return reading.section(MultiFrequency if strategy == "multi_frequency" else Tournament, "selection")


def _network(reading: _Reading, algorithm: Published) -> BaseModel | None:
    if algorithm.family == "text":
        if reading.document.sections.get("network") is None:
            message = f"section 'network' is missing: {algorithm.name} trains a language model"
            hint = "name it in network.pretrained_model_name_or_path"
            reading.problems.append(Problem((), message, "missing-key", hint))
            return None
        return reading.section(TextNetwork, "network")
    if "pretrained_model_name_or_path" in reading.document.section("network"):
        message = f"{algorithm.name} does not train a language model"
        reading.problems.append(
            Problem(("network", "pretrained_model_name_or_path"), message, "invalid-value")
        )
        return None
    if reading.document.sections.get("network") is None:
        return None
    encoder = reading.document.section("network").get("encoder_config")
    declared = isinstance(encoder, dict) and "arch" in encoder
    return reading.section(ClassicNetwork if declared else DeferredNetwork, "network")


def _buffer(reading: _Reading, algorithm: Published) -> BaseModel | None:
    if reading.document.sections.get("replay_buffer") is None:
        return None
    kind = reading.document.section("replay_buffer").get("kind")
    if kind == "llm":
        return reading.section(RolloutBuffer, "replay_buffer")
    model = PrioritisedReplay if algorithm.name == "Rainbow DQN" else ReplayBuffer
    return reading.section(model, "replay_buffer")
