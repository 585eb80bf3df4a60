"""A secret that has been given another value: a plan compares versions, never values, and trains nothing."""

import pytest
from stacks import small

from arena_gitops.app import plan_offline
from arena_gitops.plan.model import Action
from arena_gitops.report import text

REWARD = "reward/exact"


def judged(**reward):
    return small().reward(secrets=["JUDGE_KEY"], **reward).experiment().deployment()


@pytest.fixture
def values():
    """Of the platform: which value each secret has, as a number."""
    return {"JUDGE_KEY": 3, "NOBODYS": 4}


def test_another_value_is_recorded_once_and_trains_nothing(scene, values):
    here = scene(secrets=values).applied(judged())
    assert not here.plan(judged()).has_changes
    values["JUDGE_KEY"] = 7
    plan = here.plan(judged())
    (change,) = [change for change in plan.changes if change.action.acts]
    assert (change.address, change.action, change.reason) == (REWARD, Action.UPDATE, "secret_rotated")
    (field,) = change.fields
    assert (field.path, field.old, field.new, field.sensitive) == ("secret_versions.JUDGE_KEY", 3, 7, True)
    assert "secret JUDGE_KEY has another value" in text.render(plan)
    here.applied(judged())
    assert not here.plan(judged()).has_changes
    assert here.document(judged()).version == 1


def test_other_secrets_and_a_platform_that_does_not_say_are_no_change(scene, values):
    here = scene(secrets=values).applied(judged())
    values["NOBODYS"] = 9
    assert not here.plan(judged()).has_changes
    here.platform._secrets = None
    assert not here.plan(judged()).has_changes
    assert not plan_offline(judged().state(), judged().state(), target="local", against="git:x").has_changes


def test_a_value_that_goes_or_comes_is_another(scene, values):
    here = scene(secrets=values).applied(judged())
    del values["JUDGE_KEY"]
    assert here.change(judged(), REWARD).fields[0].new == 0
    here.applied(judged())
    values["JUDGE_KEY"] = 8
    assert here.change(judged(), REWARD).reason == "secret_rotated"


def test_what_an_older_version_has_stored_is_no_change_until_there_is_another(scene, values):
    here = scene().applied(judged())
    here.platform._secrets = values
    assert not here.plan(judged()).has_changes
    here.applied(judged(description="noted"))
    values["JUDGE_KEY"] = 7
    assert here.change(judged(description="noted"), REWARD).reason == "secret_rotated"
