"""What hosted Arena may answer about credits: known only as "any JSON", shown by the published client as what is left."""

import json

import pytest

from arena_gitops.platforms.arena_cloud.platform import ArenaCloudPlatform
from arena_gitops.platforms.arena_rows import balance_of
from arena_gitops.platforms.door import Door
from arena_gitops.spec.wire import Owner

JSON = {"Content-Type": "application/json"}
LISTS = [(200, b"[]", JSON)] * 4 + [(200, b'{"tiers": {}}', JSON)]
"""Projects, experiments, datasets, deployments, tiers."""


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (240.5, 240.5),
        ({"credits": 12}, 12.0),
        ({"balance": 3, "currency": "credits"}, 3.0),
        ({"credits": {"remaining": 7.0, "spent": 1.0}}, 7.0),
        ({"spent": 5.0, "worker_hours": 2.0}, None),
        ({"credits": 5, "balance": 6}, None),
        ({"credits": "many"}, None),
        ({"credits": True}, None),
        ([1.0], None),
        (None, None),
    ],
)
def test_only_what_can_be_meant_in_one_way_is_a_balance(answer, left):
    assert balance_of(answer) == left


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ((200, json.dumps({"credits": 240}).encode(), JSON), 240.0),
        ((404, b"{}", JSON), None),
        ((403, b"{}", JSON), None),
    ],
)
def test_a_look_asks_for_it_and_goes_on_without(scripted, answer, left):
    scripted.will(*LISTS, answer)
    platform = ArenaCloudPlatform(scripted.url, "the-token", book={}, door=Door(scripted.url, "the-token"))
    assert platform.observe(Owner(stack="team")).balance == left
    assert scripted.asked[-1].path == "/api/users/credits"
