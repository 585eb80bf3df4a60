"""Every published dialect is read, and all of them become one."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from arena_gitops.spec.algorithms import ALGORITHMS
from arena_gitops.spec.algorithms.grpo import GrpoKnobs
from arena_gitops.spec.algorithms.sft import SftKnobs
from arena_gitops.spec.knobs import OpaqueKnobs
from arena_gitops.spec.manifest import Manifest, ManifestError, parse_manifest
from arena_gitops.spec.manifest.names import PUBLISHED, canonical_name

OURS = ["first_dialect", "second_dialect", "current_dialect", "rows", "classic"]


def read(raw, **more):
    return parse_manifest(raw, **more).manifest


def problems(raw, **more):
    with pytest.raises(ManifestError) as caught:
        parse_manifest(raw, **more)
    return {problem.path: problem for problem in caught.value.problems}


@pytest.mark.parametrize("name", OURS)
def test_the_normal_form_reads_back_as_itself(manifest_of, name):
    manifest = read(manifest_of(name))

    assert Manifest.from_normal(manifest.normal()) == manifest
    assert Manifest.from_normal(manifest.normal()).normal() == manifest.normal()


@pytest.mark.parametrize("name", OURS)
def test_parsing_leaves_the_document_alone(manifest_of, name):
    raw = manifest_of(name)
    before = copy.deepcopy(raw)

    parse_manifest(raw, overrides={"training.max_steps": 70_000, "mutation.rand_seed": 1})

    assert raw == before


def test_the_first_dialect(manifest_of):
    manifest = read(manifest_of("first_dialect"))

    assert isinstance(manifest.algorithm, GrpoKnobs)
    assert (manifest.algorithm.lr, manifest.algorithm.group_size) == (3e-4, 8)
    assert (manifest.training.pop_size, manifest.training.hpo) == (3, True)
    assert manifest.selection.tournament_size == 2
    assert manifest.mutation.rl_hp_selection["lr"].grow_factor == 1.2
    assert manifest.text.env_type == "rollout"
    assert manifest.seed == 7


def test_the_second_dialect(manifest_of):
    manifest = read(manifest_of("second_dialect"))

    assert (manifest.algorithm.clip_coef, manifest.algorithm.clip_coef_high) == (0.2, 0.28)
    assert manifest.text.env_type == "rollout"
    assert (manifest.text.reward_file_path, manifest.text.reward_fn_name) == ("reward.py", "score")
    assert list(manifest.text.prompt_template) == ["system_0", "user_1"]
    assert manifest.selection.elitism is False
    assert manifest.base_model.lora_config.lora_r == 16


def test_the_current_dialect(manifest_of):
    manifest = read(manifest_of("current_dialect"))

    assert manifest.base_model.pretrained_model_name_or_path == "someone/tiny-instruct"
    assert manifest.base_model.max_context_length == 256
    assert (manifest.text.reward_file_path, manifest.text.reward_fn_name) == ("reward.py", "score")
    assert manifest.training.evo_steps == 6
    assert manifest.algorithm.kl_estimator == "k3"
    assert manifest.training.hpo is False


def test_rows_are_learned_as_they_are(manifest_of):
    manifest = read(manifest_of("rows"))

    assert isinstance(manifest.algorithm, SftKnobs)
    assert (manifest.text.env_type, manifest.text.objective) == ("dataset", "sft")


def test_an_algorithm_without_a_room_keeps_its_section_as_written(manifest_of):
    manifest = read(manifest_of("classic"))

    assert manifest.algorithm == OpaqueKnobs(
        name="MATD3", knobs={"lr_actor": 1e-4, "policy_freq": 4, "mean_noise": -200.0}
    )
    assert manifest.normal()["algorithm"] == {"name": "MATD3", **manifest.algorithm.knobs}
    assert manifest.replay_buffer.max_size == 100_000


def test_a_registered_algorithm_is_opaque_when_the_caller_does_not_have_it(grpo):
    assert isinstance(read(grpo, registered=frozenset()).algorithm, OpaqueKnobs)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_algorithm_may_be_spelled_without_blanks_and_in_any_case(name):
    assert canonical_name(name.replace(" ", "").upper()) == name


def test_the_sections_of_the_same_thing_have_one_normal_form(grpo):
    sections = [
        {**grpo, key: {"tournament_size": 3}}
        for key in ("selection_strategy", "tournament_selection", "tournament")
    ]

    assert len({str(read(raw).normal()) for raw in sections}) == 1


def test_numbers_that_a_yaml_1_1_loader_left_as_text_are_read(grpo):
    grpo["algorithm"]["lr"] = "1e-5"
    grpo["training"]["max_steps"] = "1_000_000"
    grpo["training"]["evo_steps"] = 1e1

    manifest = read(grpo)

    assert (manifest.algorithm.lr, manifest.training.max_steps, manifest.training.evo_steps) == (
        1e-5,
        10**6,
        10,
    )


def test_a_boolean_is_not_an_integer(grpo):
    grpo["algorithm"]["batch_size"] = True

    assert problems(grpo)[("algorithm", "batch_size")].message == "expected an integer, got true"


def test_defaults_are_filled(grpo):
    del grpo["training"]

    training = read(grpo).training

    assert (training.max_steps, training.evo_steps, training.evaluation_interval) == (1_000_000, 20, 20)
    assert (training.eval_rows, training.test_rows, training.pop_size) == (64, 128, 1)


def test_the_default_generation_is_not_longer_than_the_run(grpo):
    grpo["training"] = {"max_steps": 8}

    assert read(grpo).training.evo_steps == 8


@pytest.mark.parametrize(("version", "hpo"), [({}, True), ({"apiVersion": "agilerl.com/v1"}, False)])
def test_evolution_is_on_by_default_only_without_an_api_version(grpo, version, hpo):
    del grpo["training"]["hpo"]

    assert read({**version, **grpo}).training.hpo is hpo


@pytest.mark.parametrize("mutation", [{}, {"mutation": {}}, {"mutation": None}])
def test_no_mutation_section_means_no_mutation(grpo, mutation):
    probabilities = read({**grpo, **mutation}).mutation.probabilities

    assert (probabilities.no_mut, probabilities.rl_hp_mut) == (1.0, 0.0)


def test_overrides_win_and_may_use_any_name_of_a_field(grpo):
    overrides = {
        "training.population_size": 4,
        "selection_strategy.tournament_size": 3,
        "algorithm.lr": "1e-3",
    }

    manifest = read(grpo, overrides=overrides)

    assert manifest.training.pop_size == 4
    assert manifest.selection.tournament_size == 3
    assert manifest.algorithm.lr == 1e-3


def test_an_override_may_reach_into_a_nested_mapping(grpo):
    grpo["mutation"] = {"rl_hp_selection": {"lr": {"min": 1e-5, "max": 1e-3}}}

    manifest = read(grpo, overrides={"mutation.rl_hp_selection.lr.max": 1e-2})

    assert manifest.mutation.rl_hp_selection["lr"].max == 1e-2


def test_a_wrong_override_is_reported_as_the_override(grpo):
    found = problems(grpo, overrides={"training.max_stepz": 3, "algorithm.lr": "fast", "lr": 1})

    assert {problem.override for problem in found.values()} == {"training.max_stepz", "algorithm.lr", "lr"}


def test_an_override_of_an_unknown_section_is_reported_as_the_override(grpo):
    assert problems(grpo, overrides={"trainig.max_steps": 3})[("trainig",)].override == "trainig.max_steps"


def test_problems_are_placed_where_the_author_wrote_the_value(manifest_of):
    raw = manifest_of("second_dialect")
    raw["selection_strategy"]["tournament_size"] = 0
    raw["environment"]["reward_fn_name"] = 3
    raw["algorithm"]["clip_coef"] = [0.2, "high"]

    assert set(problems(raw)) == {
        ("selection_strategy", "tournament_size"),
        ("environment", "reward_fn_name"),
        ("algorithm", "clip_coef", 1),
    }


def test_a_moved_field_keeps_its_place(manifest_of):
    raw = manifest_of("current_dialect")
    raw["algorithm"]["max_model_len"] = 0

    assert set(problems(raw)) == {("algorithm", "max_model_len")}


def test_one_section_under_two_names_is_an_error(grpo):
    found = problems({**grpo, "tournament_selection": {}, "selection_strategy": {}})

    assert found[("selection_strategy",)].code == "written-twice"


def test_one_field_under_two_names_is_an_error(grpo):
    grpo["training"]["population_size"] = 2

    assert problems(grpo)[("training", "population_size")].code == "written-twice"


def test_the_base_model_may_be_written_twice_only_if_both_agree(manifest_of):
    raw = manifest_of("current_dialect")
    raw["network"] = {"pretrained_model_name_or_path": "someone/tiny-instruct"}
    assert read(raw).base_model.max_context_length == 256

    raw["network"] = {"pretrained_model_name_or_path": "someone/other"}
    assert problems(raw)[("algorithm", "pretrained_model_name_or_path")].code == "written-twice"


def test_the_oldest_dialect_is_refused_by_name():
    (problem,) = problems({"INIT_HP": {}, "MUTATION_PARAMS": {}}).values()

    assert "INIT_HP dialect" in problem.message


def test_another_api_version_is_refused(grpo):
    assert problems({"apiVersion": "agilerl.com/v2", **grpo})[("apiVersion",)].code == "api-version"


@pytest.mark.parametrize("raw", [None, [], "algorithm"])
def test_what_is_no_mapping_is_no_manifest(raw):
    assert "expected a mapping" in problems(raw)[()].message


def test_an_empty_manifest_lacks_its_two_sections():
    with pytest.raises(ManifestError) as caught:
        parse_manifest({})

    assert [problem.message for problem in caught.value.problems] == [
        "section 'algorithm' is missing",
        "section 'environment' is missing",
    ]


def test_an_unknown_section_names_the_one_that_was_meant(grpo):
    assert problems({**grpo, "trainig": {}})[("trainig",)].hint == "did you mean 'training'?"


def test_an_unknown_algorithm_names_the_one_that_was_meant(grpo):
    grpo["algorithm"]["name"] = "GRP0"

    assert problems(grpo)[("algorithm", "name")].hint == "did you mean 'GRPO'?"


@pytest.mark.parametrize("name", [None, 3])
def test_an_algorithm_needs_a_name(grpo, name):
    grpo["algorithm"]["name"] = name

    assert any(path[0] == "algorithm" for path in problems(grpo))


@pytest.mark.parametrize("section", ["training", "mutation", "network", "selection", "replay_buffer"])
def test_a_section_that_is_no_mapping_is_reported(grpo, section):
    assert "expected a mapping, got 5" in problems({**grpo, section: 5})[(section,)].message


def test_all_sections_are_checked_at_once(grpo):
    grpo["algorithm"]["lrr"] = 1
    grpo["training"]["max_steps"] = 0
    grpo["network"]["lora_config"]["lora_rank"] = 4
    grpo["environment"]["prompt_template"] = {"narrator_0": "x"}

    assert set(problems(grpo)) == {
        ("algorithm", "lrr"),
        ("training", "max_steps"),
        ("network", "lora_config", "lora_rank"),
        ("environment", "prompt_template"),
    }


def _corpus():
    folder = (
        Path(os.environ.get("ARENA_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "manifests"
    )
    return sorted(str(path) for path in folder.rglob("*.yaml"))


@pytest.mark.parametrize("path", _corpus(), ids=lambda path: path.rpartition("manifests/")[2])
def test_a_shared_manifest_parses_and_reads_back(path):
    raw = YAML(typ="safe").load(Path(path).read_text(encoding="utf-8"))
    if path.endswith("llm_finetuning/gspo.yaml"):
        # Its own group_size 16 lies outside the range [4, 12] it gives evolution: training.md §4 makes that an error.
        with pytest.raises(ManifestError, match=r"group_size starts at 16, outside \[4, 12\]"):
            parse_manifest(raw)
        raw["algorithm"]["group_size"] = 8
    if path.endswith("multi_agent/maddpg.yaml"):
        with pytest.raises(ManifestError, match=r"learn_step starts at 16, outside \[20, 200\]"):
            parse_manifest(raw)
        raw["algorithm"]["learn_step"] = 20
    if path.endswith("ppo/ppo_recurrent.yaml"):
        with pytest.raises(ManifestError, match=r"learn_step starts at 16384, outside \[256, 8192\]"):
            parse_manifest(raw)
        raw["algorithm"]["learn_step"] = 8192
    parsed = parse_manifest(raw)

    assert Manifest.from_normal(parsed.manifest.normal()) == parsed.manifest
    if parsed.manifest.algorithm.name not in ALGORITHMS:
        assert "has no room yet" in parsed.refusals[0].message


def test_the_published_tutorial_means_what_its_author_wrote(shared):
    raw = YAML(typ="safe").load((shared / "manifests/tutorial_gsm8k_grpo.yaml").read_text(encoding="utf-8"))

    manifest = read(raw)

    assert (manifest.algorithm.batch_size, manifest.algorithm.group_size, manifest.algorithm.lr) == (
        6,
        8,
        5e-6,
    )
    assert (manifest.training.max_steps, manifest.training.evo_steps, manifest.training.pop_size) == (
        100_000,
        5,
        2,
    )
    assert manifest.base_model.lora_config.target_modules == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert manifest.evolves


def test_both_clip_values_of_an_override_belong_to_it(grpo):
    found = problems(grpo, overrides={"algorithm.clip_coef": ["low", "high"]})

    assert {problem.override for problem in found.values()} == {"algorithm.clip_coef"}
    assert len(found) == 2


def test_an_override_below_a_plain_value_is_refused(grpo):
    found = problems(grpo, overrides={"algorithm.lr.min.of": 3})

    assert found[("algorithm", "lr", "min", "of")].code == "invalid-override"


def test_an_overridden_base_model_may_be_written_under_either_section(manifest_of):
    overrides = {"algorithm.pretrained_model_name_or_path": "someone/larger"}

    manifest = read(manifest_of("current_dialect"), overrides=overrides)

    assert manifest.base_model.pretrained_model_name_or_path == "someone/larger"


def test_a_network_that_is_no_mapping_is_reported_beside_a_field_that_belongs_there(manifest_of):
    found = problems({**manifest_of("current_dialect"), "network": 5})

    assert "expected a mapping, got 5" in found[("network",)].message


def test_a_field_of_a_union_is_reported_once(grpo):
    grpo["network"]["lora_config"]["target_modules"] = 3

    (problem,) = problems(grpo).values()

    assert problem.message == "expected a list, got 3; or expected text, got 3"


def test_an_algorithm_of_a_third_party_is_opaque_until_its_knobs_are_installed(grpo):
    grpo["algorithm"] = {"name": "Theirs", "anything": 1}

    assert read(grpo, registered=ALGORITHMS | {"Theirs"}).algorithm == OpaqueKnobs(
        name="Theirs", knobs={"anything": 1}
    )


def test_only_a_text_manifest_has_text_and_a_base_model(manifest_of):
    manifest = read(manifest_of("classic"))

    with pytest.raises(TypeError, match="does not train on text"):
        _ = manifest.text
    with pytest.raises(TypeError, match="does not train a language model"):
        _ = manifest.base_model
