"""References lead somewhere, or the error says where they might have."""

from __future__ import annotations

import pytest

from arena_gitops.spec.resource import Address


def chain(repo, **bases):
    """Experiments `name=base`; an empty base starts from the base model."""
    text = (repo.root / "experiments/sums-grpo.yaml").read_text()
    for name, base in bases.items():
        start = f"base: {{experiment: {base}}}\n" if base else ""
        repo.write(f"experiments/{name}.yaml", text.replace("sums-grpo", name, 1) + start)


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("experiments/sums-grpo.yaml", "dataset: sums", "dataset: sumz", "experiments/sums-grpo.yaml:4:10"),
        ("experiments/sums-grpo.yaml", "reward: exact", "reward: exactt", "experiments/sums-grpo.yaml:5:9"),
        ("experiments/sums-grpo.yaml", "reward: exact", "reward: exact\nproject: math", "experiments/sums-grpo.yaml:6:10"),
        ("arena.yaml", "project: maths", "project: math", "arena.yaml:2:10"),
        ("deployments/sums.yaml", "experiment: sums-grpo", "experiment: sums-gpro", "deployments/sums.yaml:3:13"),
    ],
)  # fmt: skip
def test_a_reference_to_nothing_is_an_error_at_its_place(repo, path, old, new, expected):
    repo.edit(path, old, new)
    assert f"{expected} unknown-reference" in repo.problems()
    assert "Did you mean" in repo.messages()


def test_a_name_of_another_kind_is_pointed_out(repo):
    repo.edit("experiments/sums-grpo.yaml", "reward: exact", "reward: sums")
    assert "There is dataset/sums." in repo.messages()


def test_what_refers_to_a_faulty_resource_is_not_told_that_it_is_missing(repo):
    repo.edit("datasets/sums.yaml", "category: reasoning", "category: reasonin")
    assert repo.problems() == ["datasets/sums.yaml:3:11 invalid-value"]


def test_a_chain_of_experiments_is_resolved_from_its_start(repo):
    chain(repo, a="b", b="c", c="")
    state = repo.load()
    first = state.resources[Address("experiment", "a")]
    assert first.spec["inputs"]["base"]["experiment"] == "b"
    assert Address("experiment", "b") in first.depends_on


def test_a_change_of_the_base_reaches_the_end_of_the_chain(repo):
    chain(repo, a="b", b="c", c="")
    before = repo.load().resources[Address("experiment", "a")].fingerprint
    repo.edit("experiments/c.yaml", "dataset:", "set: {algorithm.lr: 2e-5}\ndataset:")
    after = repo.load().resources[Address("experiment", "a")].fingerprint
    assert after.data == before.data
    assert after.run != before.run


def test_a_long_chain_is_no_problem(repo):
    names = [f"e{number}" for number in range(300)]
    chain(repo, **dict(zip(names, [*names[1:], ""], strict=True)))
    assert len(repo.load().resources) == 305


def test_a_cycle_is_shown_whole_at_its_first_experiment(repo):
    chain(repo, a="b", b="c", c="a")
    assert repo.problems() == ["experiments/a.yaml:6:20 base-cycle"]
    assert "experiment/a → experiment/b → experiment/c → experiment/a" in repo.messages()


def test_every_cycle_is_reported(repo):
    chain(repo, a="a", b="c", c="b", d="b")
    assert repo.problems() == ["experiments/a.yaml:6:20 base-cycle", "experiments/b.yaml:6:20 base-cycle"]


def test_a_dataset_pinned_to_its_current_content_is_that_content(repo):
    experiment = Address("experiment", "sums-grpo")
    floating = repo.load().resources[experiment]
    digest = floating.spec["inputs"]["dataset"]["digest"]
    repo.edit("experiments/sums-grpo.yaml", "dataset: sums", f"dataset: sums@{digest}")
    assert repo.load().resources[experiment].fingerprint == floating.fingerprint


def test_a_dataset_pinned_to_earlier_content_is_unmoved_by_new_content(repo):
    experiment = Address("experiment", "sums-grpo")
    before = repo.load().resources[experiment]
    digest = before.spec["inputs"]["dataset"]["digest"]
    repo.edit("experiments/sums-grpo.yaml", "dataset: sums", f"dataset: sums@{digest}")
    repo.edit("datasets/data/sums.csv", "#### 2", "#### 3")
    after = repo.load().resources[experiment]
    assert after.fingerprint == before.fingerprint
    assert [blob.absent != "" for blob in after.blobs if blob.digest == digest] == [True]


@pytest.mark.parametrize("pin", ["@v3", "@sha256:" + "0" * 64])
def test_a_reward_cannot_be_pinned_to_what_the_repository_does_not_hold(repo, pin):
    repo.edit("experiments/sums-grpo.yaml", "reward: exact", f"reward: exact{pin}")
    assert repo.problems() == ["experiments/sums-grpo.yaml:5:9 pinned-version"]


def test_a_deployment_cannot_pin_an_experiment_by_digest(repo):
    repo.edit("deployments/sums.yaml", "experiment: sums-grpo", "experiment: sums-grpo@sha256:" + "0" * 64)
    assert repo.problems() == ["deployments/sums.yaml:3:13 pinned-version"]


def test_an_experiment_may_be_filed_in_a_project_of_its_own(repo):
    repo.write("experiments/other.yaml", "kind: Project\nname: other\n")
    repo.edit("experiments/sums-grpo.yaml", "reward: exact", "reward: exact\nproject: other")
    experiment = repo.load().resources[Address("experiment", "sums-grpo")]
    assert experiment.spec["project"] == "other"
    assert Address("project", "other") in experiment.depends_on
