"""Experiments of a sweep share parts in memory, and each is what it would be by itself."""

import copy
import sys
from pathlib import Path

import pytest

from arena_gitops.repo.load import load
from arena_gitops.spec.alike import Alike
from arena_gitops.spec.manifest.parse import parse_manifest
from arena_gitops.spec.stored import stored
from arena_gitops.spec.wire import ExperimentSpec

BENCH = Path(__file__).parents[3] / "runner" / "bench"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """The generator that speed is measured with."""
    sys.path.insert(0, str(BENCH))
    try:
        from repo import write
    finally:
        sys.path.remove(str(BENCH))
    return load(write(tmp_path_factory.mktemp("sweep"), 200))


def experiments(desired):
    return [r for address, r in desired.resources.items() if address.kind == "experiment"]


def test_the_generator_makes_as_many_resources_as_were_asked_for(sweep):
    assert len(sweep.resources) == 200


def test_a_stored_experiment_is_what_the_wire_makes_of_it(sweep):
    for resource in experiments(sweep):
        spec = dict(resource.spec)
        assert stored(ExperimentSpec.model_validate(spec)) == spec
        assert parse_manifest(copy.deepcopy(spec["manifest"])).manifest.normal() == spec["manifest"]


def test_what_nobody_wrote_is_named_and_what_a_set_wrote_is_not(sweep):
    for resource in experiments(sweep):
        defaulted = resource.spec["defaulted"]
        assert "algorithm.update_epochs" in defaulted
        assert not {"algorithm.lr", "mutation.rand_seed", "training.max_steps"} & {*defaulted}
        assert defaulted == sorted(defaulted)


def test_equal_parts_are_one_object_and_others_are_not(sweep):
    first, second, *_ = (r.spec for r in experiments(sweep))
    assert first["manifest"]["training"] is second["manifest"]["training"]
    assert first["manifest"]["mutation"] != second["manifest"]["mutation"]


def test_parts_that_are_equal_but_not_to_the_letter_are_not_shared():
    alike = Alike()
    one, other, same = {"a": 1}, {"a": 1.0}, {"a": 1}
    assert alike.one("part", one) is one
    assert alike.one("part", other) is other
    assert alike.one("part", same) is one
