"""What travels as JSON is accepted by the models and by the published schemas alike, or refused by both."""

import json
from copy import deepcopy

from any_stack import applied, stacks
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from places import SCHEMA
from pydantic import ValidationError

from arena_gitops.app import World, plan
from arena_gitops.plan.model import Plan
from arena_gitops.platforms.memory import MemoryPlatform

OTHER = st.sampled_from(["x", "", {}, [], None, 1.5, -7, 7])
"""Values that neither side takes for another type: a model reads `true` as 1, a schema does not."""
PLANS = Draft202012Validator(SCHEMA)


def paths(value, at=()):
    """Every place in a document."""
    yield at
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from paths(inner, (*at, key))


def changed(document, path, how, other):
    """The document with one place replaced, left out, or given one field more."""
    document = deepcopy(document)
    *parents, last = path
    place = document
    for key in parents:
        place = place[key]
    if how == "replace":
        place[last] = other
    elif how == "leave out":
        del place[last]
    elif isinstance(place[last], dict):
        place[last]["extra"] = other
    return document


@given(stacks(), stacks(), st.data())
@settings(max_examples=120, deadline=None)
def test_a_plan_is_one_for_the_model_and_for_the_schema(first, second, data):
    world = World(MemoryPlatform())
    applied(world, first)
    document = json.loads(plan(world, second.state(), target="local").to_json())
    assert PLANS.is_valid(document)
    path = data.draw(st.sampled_from([path for path in paths(document) if path]))
    how = data.draw(st.sampled_from(["replace", "leave out", "add to"]))
    document = changed(document, path, how, data.draw(OTHER))
    try:
        Plan.from_json(json.dumps(document))
        accepted = True
    except ValidationError:
        accepted = False
    assert PLANS.is_valid(document) is accepted, (path, how)
