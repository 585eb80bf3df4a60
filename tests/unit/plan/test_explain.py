"""Which part of a fingerprint moved, and what moved it."""

from pathlib import Path

import pytest
from stacks import REWARD, ROWS, Stack, small

from arena_gitops.plan.explain import explain
from arena_gitops.report import explanation
from arena_gitops.spec.resource import Address

EXPERIMENT = "experiment/words-grpo"


@pytest.fixture
def explained(scene):
    def explained(before, after, address=EXPERIMENT):
        here = scene().applied(*before)
        observed = here.platform.observe(after.owner)
        return explain(Address.parse(address), after.state(), observed, here.plan(after), root=Path())

    return explained


def differing(told):
    return [part.name for part in told.parts if part.differs]


def test_a_knob_moves_the_data_and_the_run(explained):
    told = explained([small()], small(set={"algorithm.lr": 3e-5}))
    assert differing(told) == ["data", "run"]
    assert [field.path for field in told.fields] == ["manifest.algorithm.lr"]
    assert [parent.differs for parent in told.parents] == [False, False]
    assert (told.action, told.version) == ("new_version", 1)


def test_a_note_moves_metadata_alone(explained):
    assert differing(explained([small()], small(description="new"))) == ["meta"]


def test_an_edited_reward_is_named_as_a_file_and_as_a_parent(explained):
    edited = Stack().dataset().reward(source=REWARD + "# more\n").experiment()
    told = explained([small()], edited)
    assert differing(told) == ["data", "parents_data", "run"]
    assert {p.address: p.differs for p in told.parents} == {"dataset/words": False, "reward/exact": True}
    told = explained([small()], edited, "reward/exact")
    assert [(file.path, file.field) for file in told.files] == [
        ("rewards/exact.py", "files.rewards/exact.py")
    ]


def test_a_stale_experiment_shows_what_it_was_not_trained_on(explained):
    told = explained(
        [small()], Stack().project().dataset(rows=ROWS + "a,b\n").reward().experiment().deployment()
    )
    assert told.action == "stale"
    assert "inputs.dataset.digest" in [field.path for field in told.fields]


def test_what_is_not_applied_yet_has_one_side(explained):
    told = explained([], small())
    assert told.version is None
    assert {part.old for part in told.parts} == {None}


def test_what_nobody_has_cannot_be_explained(explained):
    with pytest.raises(KeyError):
        explained([], small(), "experiment/other")


def test_an_explanation_reads_well(explained):
    text = explanation.render(explained([small()], small(set={"algorithm.lr": 3e-5})))
    assert text.startswith(
        "experiment/words-grpo (v1 on the platform)\n  ± new version: manifest.algorithm.lr"
    )
    assert "manifest.algorithm.lr  1e-05 → 3e-05  semantic  manifests/words-grpo.yaml:" in text
    assert "dataset/words  same" in text
