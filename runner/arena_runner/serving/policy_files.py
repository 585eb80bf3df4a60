"""A policy out of its two files, as `Crew.save` wrote them: weights and a spec, nothing that is executed."""

from __future__ import annotations

import json

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load

from arena_gitops.errors import ArenaError
from arena_gitops.spec.algorithms import knobs_for
from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest.sections import ClassicTraining
from arena_runner.opening_classic import maths
from arena_runner.policies import layers
from arena_runner.policies.crew import DESIGNS, FORMAT, Crew, as_text
from arena_runner.policies.design import Design
from arena_runner.policies.spaces import Crowd, Spaces

_DESIGNS: TypeAdapter[dict[str, Design]] = TypeAdapter(dict[str, Design])
_NONE = ClassicTraining(evo_steps=1, evaluation_interval=1, hpo=False)
"""a crew wants to know how it is trained; this one never is"""


class PolicyFileError(ArenaError):
    """These files are no policy; the message says what is wrong with them."""


def read_policy(weights: bytes, spec: bytes) -> Crew:
    """A crew of one."""
    try:
        written = json.loads(spec)
        if written["format"] != FORMAT:
            raise PolicyFileError(f"policy.json has format {written['format']}; this server reads {FORMAT}")
        knobs = _knobs(written)
        designs = _DESIGNS.validate_python(written["designs"])
        kind = Crowd if "agents" in written["spaces"] else Spaces
        spaces = kind.model_validate(written["spaces"])
        tensors = load(weights)
    except (ValidationError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise PolicyFileError(f"it is no policy ({type(problem).__name__}: {problem})") from problem
    wanted = {
        f"{role}/{slot.name}": tuple(slot.shape)
        for role, design in designs.items()
        for slot in layers.layout(design)
    }
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise PolicyFileError(f"weights and designs disagree on {', '.join(wrong)}")
    crew = Crew(maths(knobs), designs, knobs, _NONE, spaces, members=1, seed=0)
    crew.load(0, {**tensors, DESIGNS: as_text(designs)})
    return crew


def _knobs(written: dict[str, object]) -> Knobs:
    name = str(written["algorithm"])
    known = knobs_for(name)
    if known is None:
        raise PolicyFileError(f"no room for algorithm {name}")
    return known.model_validate(written["knobs"])
