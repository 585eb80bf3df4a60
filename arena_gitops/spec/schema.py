"""JSON Schemas (draft 2020-12) of everything that is written or travels, generated from the models.

`arena schema --all schemas` writes them (and the plan's) to `schemas/`; a test fails when they are not fresh. The
manifest's schema describes what people may *write*, older names included, so that an editor helps with any
dialect; the models alone describe the normal form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from arena_gitops.spec.algorithms import ALGORITHMS, knobs_for
from arena_gitops.spec.descriptions import descriptions
from arena_gitops.spec.job import JOB_EVENT, JobEvent, JobSpec
from arena_gitops.spec.kinds import ADDRESS_KIND, KINDS
from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest.dialects import API_VERSION, ENV_TYPES, FIELDS, SECTIONS
from arena_gitops.spec.manifest.environment import (
    BanditEnvironment,
    GymEnvironment,
    OfflineEnvironment,
    TextEnvironment,
)
from arena_gitops.spec.manifest.names import PUBLISHED
from arena_gitops.spec.manifest.network import ClassicNetwork, DeferredNetwork
from arena_gitops.spec.manifest.sections import ReplayBuffer, RolloutBuffer, TextNetwork, Training
from arena_gitops.spec.population import MultiFrequency, Mutation, Tournament
from arena_gitops.spec.problems import models_in
from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.stack import Stack

Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{model}"

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}

_SECTION_MODELS: dict[str, tuple[type[Frozen], ...]] = {
    "environment": (TextEnvironment, GymEnvironment, OfflineEnvironment, BanditEnvironment),
    "training": (Training,),
    "mutation": (Mutation,),
    "selection": (Tournament, MultiFrequency),
    "network": (TextNetwork, ClassicNetwork, DeferredNetwork),
    "replay_buffer": (ReplayBuffer, RolloutBuffer),
}
_FILLED = {"Training": ("evo_steps", "hpo", "evaluation_interval")}
"""Required in the normal form, filled by the parser when nobody wrote them."""


def schemas() -> dict[str, Schema]:
    """File name (without suffix) → schema."""
    documents: dict[str, type[BaseModel]] = {ADDRESS_KIND[name]: model for name, model in KINDS.items()}
    documents |= {"stack": Stack, "job": JobSpec}
    found = {name: _described(model.model_json_schema(), [model]) for name, model in documents.items()}
    found["manifest"] = _described(manifest_schema(), _manifest_models())
    found["event"] = _described(_told_apart(JOB_EVENT.json_schema()), models_in(JobEvent))
    return {name: named(name, _completed(schema)) for name, schema in found.items()}


def rendered(schema: Schema) -> str:
    """The text of a schema file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def manifest_schema() -> Schema:
    """What people may write: every dialect's names, and any published algorithm."""
    knobs = _knobs()
    _, top = models_json_schema([(model, "validation") for model in _manifest_models()], ref_template=_REF)
    defs: dict[str, Schema] = top["$defs"]
    for algorithm in knobs:
        _open_knobs(defs[algorithm.__name__], algorithm)
    for section, group in _SECTION_MODELS.items():
        for model in group:
            _open_section(section, model.__name__, defs[model.__name__])
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "algorithm": {"anyOf": [*_refs(knobs), _opaque()]},
            **{section: _section(group) for section, group in _SECTION_MODELS.items()},
            **{alias: _section(_SECTION_MODELS[section]) for alias, section in SECTIONS.items()},
        },
        "required": ["algorithm", "environment"],
        "additionalProperties": False,
        "$defs": defs,
    }


def _described(schema: Schema, roots: list[type[BaseModel]]) -> Schema:
    """Give every property the text under its field, so that an editor can show it."""
    pending, seen = list(roots), set[type[BaseModel]]()
    while pending:
        model = pending.pop()
        if model in seen:
            continue
        seen.add(model)
        pending.extend(
            found for field in model.model_fields.values() for found in models_in(field.annotation)
        )
        properties = schema.get("$defs", {}).get(model.__name__, schema).get("properties", {})
        for name, text in descriptions(model).items():
            if name in properties:
                properties[name] = {**properties[name], "description": text}
    return schema


def _told_apart(schema: Schema) -> Schema:
    """Demand the field by which alternatives are told apart: the models do, whatever its default is."""
    field, names = schema["discriminator"]["propertyName"], schema["discriminator"]["mapping"].values()
    for name in names:
        one = schema["$defs"][name.rpartition("/")[2]]
        one["required"] = sorted({*one.get("required", ()), field})
    return schema


def _knobs() -> list[type[Knobs]]:
    return [found for name in sorted(ALGORITHMS) if (found := knobs_for(name)) is not None]


def _manifest_models() -> list[type[BaseModel]]:
    return [*_knobs(), *(model for group in _SECTION_MODELS.values() for model in group)]


def _completed(schema: Any) -> Any:
    """Say what pydantic leaves out: bounds behind a validator, and that a pattern of keys excludes others."""
    if isinstance(schema, list):
        return [_completed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    completed = {
        _BOUNDS.get(key, key) if isinstance(value, int | float) else key: _completed(value)
        for key, value in schema.items()
    }
    if "patternProperties" in completed:
        completed["additionalProperties"] = False
    return completed


def named(name: str, schema: Schema) -> Schema:
    """A schema as its file has it: draft, id and title."""
    return {"$schema": _DRAFT, "$id": f"{name}.schema.json", **schema, "title": name}


def _refs(models: Iterable[type[Frozen]]) -> list[Schema]:
    return [{"$ref": _REF.format(model=model.__name__)} for model in models]


def _section(group: tuple[type[Frozen], ...]) -> Schema:
    return {"anyOf": [*_refs(group), {"type": "null"}]}


def _opaque() -> Schema:
    """An algorithm without a room: its own fields are not checked."""
    names = sorted(name for name in PUBLISHED if name not in ALGORITHMS)
    return {"type": "object", "properties": {"name": _spelled(*names)}, "required": ["name"]}


def _also_called(name: str) -> tuple[str, ...]:
    """`recurrent: true` makes one algorithm of another's name."""
    return (name, "PPO") if name == "Recurrent PPO" else (name,)


def _spelled(*names: str) -> Schema:
    """The names as an editor offers them, in any case and with any spaces, as they are read."""
    letters = (name.replace(" ", "") for name in names)
    patterns = ("".join(f"{_either(letter)} *" for letter in name) for name in letters)
    return {"anyOf": [{"enum": list(names)}, {"type": "string", "pattern": f"^ *({'|'.join(patterns)})$"}]}


def _either(letter: str) -> str:
    return f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else re.escape(letter)


def _open_knobs(schema: Schema, model: type[Knobs]) -> None:
    """Allow what older dialects wrote under `algorithm`, and demand the name that tells algorithms apart."""
    properties = schema["properties"]
    schema["required"] = sorted({*schema.get("required", ()), "name"})
    _aliases("algorithm", properties)
    if model.ALGORITHM in PUBLISHED:
        properties["name"] = _spelled(*_also_called(model.ALGORITHM))
    lora = {"$ref": _REF.format(model="Lora")}
    properties |= {
        "pretrained_model_name_or_path": {"type": "string", "minLength": 1},
        "max_model_len": TextNetwork.model_json_schema()["properties"]["max_context_length"],
        "lora_config": lora,
    }
    if "clip_coef" in model.model_fields:
        one = properties["clip_coef"]
        pair = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
        properties["clip_coef"] = {"anyOf": [one, pair]}
    if "kl_estimator" in model.model_fields:
        properties["use_bias_correction_kl"] = {"type": "boolean"}


def _open_section(section: str, model: str, schema: Schema) -> None:
    properties = schema["properties"]
    filled = {"env_type", *_FILLED.get(model, ())}
    schema["required"] = [name for name in schema.get("required", ()) if name not in filled]
    _aliases(section, properties)
    if model == "TextEnvironment":
        properties["env_type"]["enum"] += sorted(ENV_TYPES)
    if model in {"DeferredNetwork", "ClassicNetwork"}:
        properties["arch"] = {"type": "string"}


def _aliases(section: str, properties: dict[str, Schema]) -> None:
    for alias, name in FIELDS.get(section, {}).items():
        if name in properties:
            properties[alias] = properties[name]
