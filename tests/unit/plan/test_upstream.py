"""New content of a dataset spends nothing by itself; new behaviour of a reward does."""

import pytest
from stacks import REWARD, ROWS, small

from arena_gitops.plan.model import Action
from arena_gitops.platforms.scripted import RunScript

MORE = ROWS + "What is 1 + 2?,#### 3\n"
OTHER = REWARD.replace("-1", "0")


def new_rows(**experiment):
    return small().dataset(rows=MORE).experiment(**experiment).deployment()


def new_reward(**experiment):
    return small().reward(source=OTHER).experiment(**experiment).deployment()


def test_new_rows_are_a_new_version_of_the_dataset_and_make_experiments_stale(scene):
    here = scene().applied(small())
    assert here.change(new_rows(), "dataset/words").action is Action.NEW_VERSION
    assert here.change(new_rows()).action is Action.STALE
    assert here.plan(new_rows()).summary["stale"] == 1


def test_a_stale_experiment_names_the_deployment_that_serves_it(scene):
    serves = "deployment/words serves it, and goes on doing so"
    done = scene(runs=RunScript.completes()).applied(small())
    assert serves in done.change(new_rows()).notes
    assert done.change(new_rows(), "deployment/words") is None
    at_work = scene(runs=RunScript.stays_running(step=3)).applied(small())
    assert serves not in at_work.change(new_rows()).notes


def test_stale_experiments_keep_what_they_were_trained_with(scene):
    here = scene().applied(small())
    before = here.document(small())
    here.applied(new_rows(description="newer"))
    after = here.document(small())
    assert (after.version, after.run) == (before.version, before.run)
    assert after.spec["inputs"] == before.spec["inputs"]
    assert after.spec["description"] == "newer"
    assert here.change(new_rows(description="newer")).action is Action.STALE


def test_a_change_of_training_takes_the_newest_rows(scene):
    here = scene().applied(small())
    change = here.change(new_rows(set={"algorithm.lr": 3e-5}))
    assert change.action is Action.NEW_VERSION
    assert "inputs.dataset.digest" in {field.path for field in change.fields}


@pytest.mark.parametrize(
    ("stack", "action"),
    [
        (lambda: new_rows(on_upstream_change={"dataset": "new_version"}), Action.NEW_VERSION),
        (new_reward, Action.NEW_VERSION),
        (lambda: new_reward(on_upstream_change={"reward": "stale"}), Action.UPDATE),
        (lambda: new_rows(on_upstream_change={"dataset": "ignore"}), Action.UPDATE),
    ],
    ids=["dataset, asked for", "reward", "reward, held back", "dataset, ignored"],
)
def test_an_experiment_decides_what_new_content_means(scene, stack, action):
    assert scene().applied(small()).change(stack()).action is action


def test_what_is_ignored_is_not_shown_as_stale(scene):
    ignoring = {"on_upstream_change": {"dataset": "ignore"}}
    here = scene().applied(small(**ignoring))
    assert here.change(new_rows(**ignoring)) is None


def test_another_dataset_is_not_new_content(scene):
    stack = small().dataset("others", rows=MORE).experiment(dataset="others").deployment()
    assert scene().applied(small()).change(stack).action is Action.NEW_VERSION


def test_an_experiment_follows_its_base(scene):
    """Nothing in the child's own file changes, and yet it starts from other weights."""
    first = small().experiment("child", base="words-grpo")
    second = small(set={"algorithm.lr": 3e-5}).experiment("child", base="words-grpo")
    change = scene().applied(first).change(second, "experiment/child")
    assert (change.action, change.reason) == (Action.NEW_VERSION, "parent_changed")
