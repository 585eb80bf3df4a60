"""An algorithm is two files of one name: its knobs in `spec/algorithms`, its maths in the runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena_gitops import discover
from arena_gitops.spec.algorithms import ALGORITHMS
from arena_gitops.spec.knobs import Knobs

ROOT = Path(__file__).resolve().parents[2]
KNOBS = ROOT / "arena_gitops" / "spec" / "algorithms"
MATHS = ROOT / "runner" / "arena_runner" / "algorithms"


def rooms(folder):
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


def maths_of(name):
    """The runner's file of an algorithm: its own, or that of the family whose preset it is."""
    return discover.find("arena_gitops.spec.algorithms", name, Knobs).MATHS or name


def test_every_algorithm_has_its_knobs_and_its_maths():
    assert {maths_of(name) for name in rooms(KNOBS)} == rooms(MATHS) != set()


@pytest.mark.parametrize("name", sorted(rooms(KNOBS)))
def test_the_file_of_an_algorithm_has_its_name(name):
    knobs = discover.find("arena_gitops.spec.algorithms", name, Knobs)

    assert knobs.ALGORITHM.lower().replace(".", "_").replace(" ", "_") == name
    assert knobs.ALGORITHM in ALGORITHMS
    assert knobs.model_fields["name"].default == knobs.ALGORITHM


@pytest.mark.parametrize("name", sorted(rooms(MATHS)))
def test_the_maths_of_an_algorithm_has_an_update(name):
    """Read, not imported: this test also runs where torch is not installed."""
    assert "\ndef update(" in (MATHS / f"{name}.py").read_text(encoding="utf-8")
