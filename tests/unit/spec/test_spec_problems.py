"""All problems at once, by path, in words, with near matches."""

from __future__ import annotations

import pytest

from arena_gitops.errors import InvalidDocumentError
from arena_gitops.spec.kinds.dataset import Dataset
from arena_gitops.spec.kinds.deployment import Deployment
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.kinds.reward import Reward
from arena_gitops.spec.problems import near, parse, suggestion

EXPERIMENT = {"kind": "Experiment", "name": "e", "manifest": "../manifests/m.yaml"}


def problems(model, raw, at=()):
    with pytest.raises(InvalidDocumentError) as caught:
        parse(model, raw, at=at)
    return {problem.path: problem for problem in caught.value.problems}


def test_every_problem_is_reported_at_its_own_path():
    raw = {**EXPERIMENT, "num_nodes": 0, "budget": {"max_runtime": "6 hours"}, "dataset": "d@v0"}

    found = problems(Experiment, raw)

    assert set(found) == {("num_nodes",), ("budget", "max_runtime"), ("dataset",)}


def test_an_unknown_key_names_the_key_that_was_meant():
    found = problems(Experiment, {**EXPERIMENT, "dateset": "d"})[("dateset",)]

    assert (found.code, found.hint) == ("unknown-key", "did you mean 'dataset'?")


def test_an_unknown_key_of_a_nested_mapping_is_compared_with_that_mapping():
    found = problems(Experiment, {**EXPERIMENT, "budget": {"max_credit": 3}})

    assert found[("budget", "max_credit")].hint == "did you mean 'max_credits'?"


def test_an_unknown_key_without_a_near_match_lists_the_known_ones():
    found = problems(Experiment, {**EXPERIMENT, "retry": {"wxyz": 3}})

    assert found[("retry", "wxyz")].hint == "known: max, on"


def test_a_key_is_suggested_by_the_name_documents_use():
    assert problems(Experiment, {**EXPERIMENT, "sett": {}})[("sett",)].hint == "did you mean 'set'?"


def test_a_missing_key_says_what_it_is():
    found = problems(Dataset, {"kind": "Dataset", "name": "d", "category": "sft", "file": "a.csv"})

    assert found[("column_mapping",)].code == "missing-key"
    assert "column of the file" in found[("column_mapping",)].hint


def test_an_item_of_a_list_has_its_index_in_the_path():
    case = {"question": "q", "answer": "a", "completion": "c", "expect": True}

    found = problems(Reward, {"kind": "Reward", "name": "r", "file": "r.py", "cases": [case]})

    assert str(found[("cases", 0, "expect")].message) == "expected a number, got true"


def test_a_number_where_text_is_expected_asks_for_quotes():
    raw = {
        "kind": "Dataset",
        "name": "d",
        "category": "sft",
        "hf": {"id": "a/b", "revision": 25921e05},
        "column_mapping": {"prompt": "p", "target": "t"},
    }

    assert problems(Dataset, raw)[("hf", "revision")].hint == "put the value in quotes"


def test_a_word_of_yaml_1_1_for_a_boolean_is_explained():
    found = problems(Experiment, {**EXPERIMENT, "lifecycle": {"protect": "yes"}})

    assert found[("lifecycle", "protect")].hint == "YAML 1.2 reads this as text; write true or false"


def test_a_wrong_choice_names_the_choices_and_the_nearest():
    found = problems(Experiment, {**EXPERIMENT, "retry": {"on": ["pre-empted"]}})[("retry", "on", 0)]

    assert found.message == "expected 'preempted' or 'failed', got 'pre-empted'"
    assert found.hint == "did you mean 'preempted'?"


def test_a_pattern_is_put_in_words():
    raw = {"kind": "Deployment", "name": "d", "experiment": "e", "checkpoint": "newest"}

    assert problems(Deployment, raw)[("checkpoint",)].message == (
        "expected best, step_N, step_N/mK or @alias, got 'newest'"
    )


def test_a_document_that_is_no_mapping_is_one_problem_at_the_root():
    assert problems(Reward, ["a"])[()].message == "expected a mapping, got a list"


def test_paths_continue_those_of_the_caller():
    assert ("experiments", 3, "manifest") in problems(
        Experiment, {"kind": "Experiment", "name": "e"}, at=("experiments", 3)
    )


def test_a_long_value_is_not_repeated_in_full():
    found = problems(Experiment, {**EXPERIMENT, "num_nodes": "x" * 500})

    assert len(found[("num_nodes",)].message) < 120


def test_near_ignores_case_and_gives_up_when_nothing_is_near():
    assert near("Grpo", ["GRPO", "SFT"]) == "GRPO"
    assert near("zzz", ["GRPO", "SFT"]) is None


def test_a_suggestion_from_many_words_stays_short():
    assert suggestion("zzzz", [f"word{n}" for n in range(100)]) == ""


def test_a_problem_reads_as_place_message_and_hint():
    (problem,) = problems(Experiment, {**EXPERIMENT, "sett": {}}).values()

    assert str(problem) == "sett: unknown key 'sett' (did you mean 'set'?)"
