"""Names made of content, and what is read off them."""

import pytest
from stacks import Stack, small

from arena_gitops.platforms.arena_cloud.names import VersionName, content_of, dataset_name, owner_tag
from arena_gitops.platforms.arena_cloud.sent import ours, published, written
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner

EXPERIMENT = Address("experiment", "words-grpo")
OWNER = Owner(stack="team")


def spec(**experiment):
    return Stack().dataset().reward().experiment(**experiment).resources[EXPERIMENT].spec


def content(rerun=0, **experiment):
    return content_of(spec(**experiment), rerun)


def test_a_name_is_read_back():
    made = VersionName.of("words-grpo", 12, content(), OWNER)
    assert VersionName.parse(str(made)) == made
    assert str(made).startswith("words-grpo--v12-")


@pytest.mark.parametrize("name", ["words-grpo", "words--v0-0-0-0", "a--v1-0123456x-012345-012345", ""])
def test_names_of_others_are_none_of_ours(name):
    assert VersionName.parse(name) is None


@pytest.mark.parametrize("number", [1, 10, 100])
def test_no_name_is_longer_than_names_may_be_and_two_long_ones_differ(number):
    one, two = (VersionName.of("x" * 62 + last, number, content(), OWNER) for last in "ab")
    assert len(str(one)) == len(str(two)) == 63
    assert one != two


def test_what_is_trained_is_in_the_name_and_what_is_not_is_not():
    same = {"description": "other", "tier": "gpu", "budget": {"max_runtime_s": 60}}
    assert content(**same) == content()
    assert content(set={"training.max_steps": 2000}) == content()
    assert content(set={"algorithm.lr": 3e-5}) != content()
    assert content(rerun=1) != content()


def test_a_default_that_moves_changes_no_name():
    moved = {**spec(), "manifest": {**spec()["manifest"]}}
    moved["manifest"]["algorithm"] = {**moved["manifest"]["algorithm"], "beta": 0.5}
    assert "algorithm.beta" in moved["defaulted"]
    assert content_of(moved) == content()


def test_other_rows_are_told_from_other_work():
    with_rows = (
        Stack().dataset(rows="question,answer\na,b\n").reward().experiment().resources[EXPERIMENT].spec
    )
    with_code = Stack().dataset().reward(source="def reward(q, a, c):\n    return 0.0\n").experiment()
    assert content_of(with_rows).work == content().work
    assert content_of(with_rows).rows != content().rows
    other = content_of(with_code.resources[EXPERIMENT].spec)
    assert (other.rows, other.work == content().work) == (content().rows, False)


def test_a_dataset_has_one_name_in_its_own_file_and_in_an_experiment():
    stack = small()
    own = stack.resources[Address("dataset", "words")].spec
    assert dataset_name("words", own) == dataset_name(
        "words", stack.resources[EXPERIMENT].spec["inputs"]["dataset"]
    )


def test_a_preview_is_another_owner():
    assert owner_tag(OWNER) != owner_tag(Owner(stack="team", namespace="pr-1"))


def test_what_is_sent_is_what_somebody_wrote_in_published_names():
    sent = published(spec(set={"training.eval_rows": 4, "selection.tournament_size": 3}), "words--12345678")
    assert sent["environment"] == {
        "name": "words",
        "dataset": "words--12345678",
        "rubric_file_path": "exact.py",
        "rubric_name": "reward",
    }
    assert sent["tournament_selection"] == {"tournament_size": 3}
    assert "eval_rows" not in sent["training"]
    assert "beta" not in sent["algorithm"]
    assert ours(spec(set={"training.eval_rows": 4})) == ("training.eval_rows",)
    assert written(spec())["training"] == {"max_steps": 1000, "evo_steps": 5, "pop_size": 2}
