"""A newer version of the tool, with other defaults and new fields, trains nothing that was trained before."""

from dataclasses import replace

import pytest
from stacks import small

from arena_gitops.plan.model import Action
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.resource import Address

EXPERIMENT = Address("experiment", "words-grpo")
REWARD = Address("reward", "exact")


def upgraded(stack, change):
    """The same repository read by a version that fills in other things."""
    resources = stack.resources
    for address in (REWARD, EXPERIMENT):
        resource = resources[address]
        spec = change(address.kind, resource.spec)
        spans = {path: span for path, span in resource.spans.items() if "new_knob" not in path}
        parents = tuple((parent, resources[parent].fingerprint) for parent in resource.depends_on)
        found = fingerprint_of(address.kind, spec, [fingerprint for _, fingerprint in parents])
        resources[address] = replace(resource, spec=spec, spans=spans, fingerprint=found, parents=parents)
    return stack


def other_default(kind, spec):
    if kind != "experiment":
        return dict(spec)
    assert "algorithm.beta" in spec["defaulted"]
    algorithm = {**spec["manifest"]["algorithm"], "beta": 0.5}
    return {**spec, "manifest": {**spec["manifest"], "algorithm": algorithm}}


def new_knob(kind, spec):
    """Everywhere: of the experiment, of its manifest, of the reward, and so of the job's inputs."""
    if kind == "reward":
        return {**spec, "new_knob": 1}
    algorithm = {**spec["manifest"]["algorithm"], "new_knob": 1}
    reward = {**spec["inputs"]["reward"], "new_knob": 1}
    return {
        **spec,
        "new_knob": {"deep": 1},
        "defaulted": [*spec["defaulted"], "algorithm.new_knob"],
        "manifest": {**spec["manifest"], "algorithm": algorithm},
        "inputs": {**spec["inputs"], "reward": reward},
    }


@pytest.mark.parametrize("change", [other_default, new_knob])
def test_an_upgrade_of_the_tool_changes_nothing(scene, change):
    here = scene().applied(small())
    assert not here.plan(upgraded(small(), change)).has_changes


@pytest.mark.parametrize("change", [other_default, new_knob])
def test_after_an_upgrade_a_note_is_still_only_a_note(scene, change):
    noted = scene().applied(small()).plan(upgraded(small(description="newer"), change))
    assert [(c.address, c.action) for c in noted.changes if c.action.acts] == [
        ("experiment/words-grpo", Action.UPDATE)
    ]


def test_after_an_upgrade_what_is_written_counts_as_always(scene):
    here = scene().applied(small())
    change = here.change(upgraded(small(set={"algorithm.lr": 3e-5}), other_default))
    assert change.action is Action.NEW_VERSION
    assert {field.path for field in change.fields} == {"manifest.algorithm.lr", "manifest.algorithm.beta"}


def test_a_default_that_was_kept_stays_kept_through_an_update(scene):
    here = scene().applied(small())
    here.applied(upgraded(small(description="newer"), other_default))
    stored = here.document(small())
    assert (stored.version, stored.spec["manifest"]["algorithm"]["beta"]) == (1, 0.001)
    assert not here.plan(upgraded(small(description="newer"), other_default)).has_changes


def test_a_new_version_is_trained_with_the_defaults_of_its_day(scene):
    here = scene().applied(small(), upgraded(small(set={"algorithm.lr": 3e-5}), other_default))
    assert here.document(small()).spec["manifest"]["algorithm"]["beta"] == 0.5


def test_taking_a_written_value_out_is_a_change(scene):
    here = scene().applied(small(set={"algorithm.beta": 0.5}))
    assert here.change(small()).action is Action.NEW_VERSION


def test_writing_a_default_down_is_none(scene):
    here = scene().applied(small())
    assert not here.plan(small(set={"algorithm.beta": 0.001})).has_changes
