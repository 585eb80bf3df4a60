"""A state is read off a stream one resource at a time, and is what it would be if it were read as a whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from stacks import small

from arena_gitops.plan.offline import assumed
from arena_gitops.platforms.states import read_state
from arena_gitops.spec.wire import StateDocument


def state(**changes):
    observed = assumed(small(description='ends like ,"resources":[ in "quotes", é').state())
    found = StateDocument(
        platform="test",
        version="1",
        lineage='a \\"resources\\":[ b',
        etag="e",
        resources=tuple(observed.resources.values()),
        runs=tuple(observed.runs.values()),
    )
    return found.model_copy(update=changes)


def pieces(data, sizes):
    while data:
        size = sizes.pop() if sizes else len(data)
        yield data[:size]
        data = data[size:]


@given(st.lists(st.integers(1, 400), max_size=40), st.booleans())
def test_however_it_is_cut_it_is_the_same(sizes, spaced):
    data = state().model_dump_json()
    data = json.dumps(json.loads(data), ensure_ascii=False, indent=1) if spaced else data
    assert read_state(pieces(data.encode(), sizes)) == state()


def test_there_may_be_no_resources():
    assert read_state([state(resources=()).model_dump_json().encode()]).resources == ()


def test_equal_parts_are_one_object():
    found = read_state([state(resources=(*state().resources, *state().resources)).model_dump_json().encode()])
    (
        first,
        *_,
    ) = (d for d in found.resources if d.kind == "experiment")
    last = [d for d in found.resources if d.kind == "experiment"][-1]
    assert first is not last
    assert first.spec["inputs"] is last.spec["inputs"]
    assert first.spec["manifest"]["training"] is last.spec["manifest"]["training"]


WHOLE = state().model_dump_json()
BROKEN = {
    "cut in a resource": WHOLE[: WHOLE.index('"inputs"')],
    "cut after the resources": WHOLE[: WHOLE.rindex("]")],
    "not a number": WHOLE.replace('"num_nodes":1', '"num_nodes":NaN'),
    "a resource that is none": WHOLE.replace('"resources":[', '"resources":[1,'),
    "a resource without a name": WHOLE.replace('"name":"words",', "", 1),
    "a spec that is no object": WHOLE.replace('"resources":[', '"resources":[{"spec": 1},'),
    "a field nobody knows": WHOLE.replace('"resources":[{', '"resources":[{"new": 1,'),
    "another document": "{}",
    "no JSON": "<html>",
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_state_is_refused(what):
    assert BROKEN[what] != WHOLE
    with pytest.raises((ValidationError, ValueError)):
        read_state([BROKEN[what].encode()])
