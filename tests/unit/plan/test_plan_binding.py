"""An approval is of what will be made, to the last field: also of what has no old value to differ from."""

import pytest
from stacks import small


@pytest.mark.parametrize(
    "changed",
    [{"set": {"training.max_steps": 2000}}, {"budget": {"max_credits": 5}}, {"description": "other words"}],
    ids=["steps", "budget", "description"],
)
def test_a_create_with_other_content_is_another_plan(scene, changed):
    approved = scene().plan(small())
    assert scene().plan(small(**changed)).plan_id != approved.plan_id
    assert scene().plan(small()).plan_id == approved.plan_id
