"""What people should know about a manifest that is right: fields without effect, and what has no room yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arena_gitops.errors import Problem
from arena_gitops.spec.inputs import PETTINGZOO
from arena_gitops.spec.knobs import OpaqueKnobs
from arena_gitops.spec.manifest.environment import GymEnvironment
from arena_gitops.spec.manifest.model import Manifest
from arena_gitops.spec.manifest.network import ClassicNetwork, CnnLstm, Lstm
from arena_gitops.spec.manifest.sections import Training
from arena_gitops.spec.population import MultiFrequency
from arena_gitops.spec.section import NotActedOn, Only, Section

Mark = tuple[tuple[str, ...], Any, NotActedOn | Only]
_GYMNASIUM = re.compile(r"(?:ALE/)?[A-Z][A-Za-z0-9]*-v[0-9]+")
_MANY = {"IPPO", "MADDPG"}
MOST_KNOWN = 1 << 10


def of(manifest: Manifest, *, hpo_written: bool) -> tuple[list[Problem], list[Problem]]:
    """The notes and the refusals of a manifest, canonical paths."""
    if isinstance(manifest.algorithm, OpaqueKnobs):
        return [], [_no_algorithm(manifest.algorithm.name)]
    notes: list[Problem] = []
    refusals: list[Problem] = []
    for path, value, mark in _marked(manifest):
        name = path[-1]
        if isinstance(mark, NotActedOn):
            why = f": {mark.why}" if mark.why else ""
            notes.append(Problem(path, f"{name!r} is understood, not acted on{why}", "not-acted-on"))
        elif value not in mark.values:
            refusals.append(Problem(path, f"{name!r} cannot be {value!r}: {mark.why}", "no-room"))
    notes.extend(_hpo(manifest.training, written=hpo_written))
    notes.extend(_rl_dropout(manifest))
    if isinstance(manifest.selection, MultiFrequency):
        message = "selection strategy 'multi_frequency' has no room yet; only 'tournament' has"
        refusals.append(Problem(("selection", "strategy"), message, "no-room"))
    refusals.extend(_agents(manifest))
    refusals.extend(_memory(manifest))
    return notes, refusals


def _agents(manifest: Manifest) -> Iterator[Problem]:
    """PettingZoo's environments are modules; Gymnasium's ids are none."""
    environment, algorithm = manifest.environment, manifest.algorithm.name
    if not isinstance(environment, GymEnvironment):
        return
    name, path = environment.name, ("environment", "name")
    several = bool(PETTINGZOO.fullmatch(name))
    if several and algorithm not in _MANY:
        hint = f"use {' or '.join(sorted(_MANY))}"
        yield Problem(path, f"{algorithm} trains one agent; {name} has several", "no-room", hint)
    if algorithm in _MANY and _GYMNASIUM.fullmatch(name):
        hint = "name a module such as mpe2.simple_spread_v3, or an Environment with multi_agent: true"
        yield Problem(path, f"{algorithm} trains several agents; {name} has one", "no-room", hint)


def _memory(manifest: Manifest) -> Iterator[Problem]:
    """An encoder that remembers and an algorithm that learns sequences belong together."""
    network, algorithm = manifest.network, manifest.algorithm
    if not isinstance(network, ClassicNetwork):
        return
    remembers = isinstance(network.encoder_config, Lstm | CnnLstm)
    if remembers != (algorithm.name == "Recurrent PPO"):
        message = f"{algorithm.name} does not train an encoder of kind {network.encoder_config.arch}"
        hint = "Recurrent PPO learns lstm and cnn_lstm, every other algorithm the kinds without memory"
        yield Problem(("network", "encoder_config", "arch"), message, "no-room", hint)


def _no_algorithm(name: str) -> Problem:
    from arena_gitops.spec.algorithms import ALGORITHMS

    known = ", ".join(sorted(ALGORITHMS))
    return Problem(
        ("algorithm", "name"), f"algorithm {name!r} has no room yet", "no-room", f"can train: {known}"
    )


def _marked(manifest: Manifest) -> Iterator[Mark]:
    for name in type(manifest).model_fields:
        section = getattr(manifest, name)
        if isinstance(section, Section):
            for path, value, mark in _marks_of(section):
                if not _weightless(path, value):
                    yield (name, *path), value, mark


_KNOWN: dict[int, tuple[Section, tuple[Mark, ...]]] = {}


def _marks_of(section: Section) -> tuple[Mark, ...]:
    """`section.marked()`; of a section that many manifests share, once."""
    known = _KNOWN.get(id(section))
    if known is not None and known[0] is section:
        return known[1]
    if len(_KNOWN) >= MOST_KNOWN:
        _KNOWN.clear()
    found = tuple(section.marked())
    _KNOWN[id(section)] = section, found
    return found


def _weightless(path: tuple[str, ...], value: Any) -> bool:
    """A mutation probability of zero asks for nothing, so there is nothing to report."""
    return path[0] == "probabilities" and value == 0


def _hpo(training: Training, *, written: bool) -> Iterator[Problem]:
    if written or training.pop_size == 1:
        return
    state, because = ("on", "no") if training.hpo else ("off", "an")
    message = (
        f"'hpo' is not written: evolution is {state}, the default of manifests with {because} apiVersion"
    )
    yield Problem(("training", "hpo"), message, "hpo-default", "write hpo: true or hpo: false")


def _rl_dropout(manifest: Manifest) -> Iterator[Problem]:
    if manifest.classic is not None:
        return
    rollout = manifest.text.env_type == "rollout"
    if rollout and manifest.base_model.lora_config.lora_dropout > 0:
        message = "'lora_dropout' is understood, not acted on: updates from rollouts use none"
        yield Problem(("network", "lora_config", "lora_dropout"), message, "not-acted-on")
