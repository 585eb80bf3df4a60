"""A manifest to begin with, as the client asks for it."""

from __future__ import annotations

import pytest
from arena_asks import P, make_dataset, submit

from arena_gitops.spec.manifest import parse_manifest
from arena_gitops.spec.manifest.names import PUBLISHED

pytestmark = pytest.mark.one_database


def asked(http, algorithm, **more):
    return http.get(f"{P}/experiments/run-spec/default", params={"algorithm": algorithm, **more})


@pytest.mark.parametrize("algorithm", sorted(PUBLISHED))
def test_every_published_algorithm_has_defaults_that_this_server_reads(http, algorithm):
    answer = asked(http, algorithm, datasetName="sums", gymEnv="LunarLander-v3")

    assert parse_manifest(answer.json()).manifest.algorithm.name == algorithm


@pytest.mark.parametrize("name", ["RainbowDQN", "Rainbow DQN", "RecurrentPPO"])
def test_an_algorithm_is_named_as_it_was_asked_for(http, name):
    """Clients differ in how they call it, and refuse the other's name."""
    assert asked(http, name).json()["algorithm"]["name"] == name


def test_what_is_asked_about_is_filled_in(http):
    spec = asked(http, "GRPO", datasetName="sums", pretrainedModelNameOrPath="tiny", gymEnv="").json()

    assert spec["environment"]["dataset"] == "sums"
    assert spec["network"]["pretrained_model_name_or_path"] == "tiny"


def test_a_default_can_be_submitted_as_it_is(http):
    make_dataset(http)
    spec = asked(http, "GRPO", datasetName="sums", pretrainedModelNameOrPath="tiny").json()

    assert submit(http, spec)[-1]["status"] == "completed"


def test_one_section_is_given_alone(http):
    assert asked(http, "DQN", field="tournament_selection").json() == {"tournament_size": 2, "elitism": True}


def test_a_custom_environment_is_named_by_its_entrypoint(http):
    section = asked(http, "PPO", gymEnv="merge", gymEnvEntrypoint="env:Merge", field="environment").json()

    assert (section["name"], section["entrypoint"], section["custom"]) == ("merge", "env:Merge", True)


@pytest.mark.parametrize(
    ("query", "said"),
    [({"algorithm": "Chess"}, "there are: "), ({"algorithm": "DQN", "field": "x"}, "no section")],
)
def test_what_there_is_not_is_said(http, query, said):
    answer = asked(http, **query)

    assert (answer.status_code, said in answer.json()["detail"]) == (422, True)
