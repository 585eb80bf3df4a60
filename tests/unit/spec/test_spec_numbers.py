"""Numbers mean the same however a YAML loader read them."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from arena_gitops.spec.numbers import Bool, Float, Int

INT, FLOAT, BOOL = TypeAdapter(Int), TypeAdapter(Float), TypeAdapter(Bool)


@pytest.mark.parametrize(
    ("written", "meant"),
    [(7, 7), ("1_000_000", 1_000_000), (1e6, 1_000_000), ("1e6", 1_000_000), ("-3", -3), (2.0, 2)],
)
def test_an_integer_may_be_written_in_many_ways(written, meant):
    assert INT.validate_python(written) == meant
    assert isinstance(INT.validate_python(written), int)


@pytest.mark.parametrize(
    "written", [True, False, 1.5, "1.5", "seven", "", "1e-5", None, [], float("inf"), " 7"]
)
def test_what_is_no_integer_is_refused(written):
    with pytest.raises(ValidationError, match="expected an integer"):
        INT.validate_python(written)


@pytest.mark.parametrize(
    ("written", "meant"), [("1e-5", 1e-5), ("1_0.5", 10.5), (3, 3.0), (".5", 0.5), ("7", 7.0)]
)
def test_a_number_may_be_written_in_many_ways(written, meant):
    assert FLOAT.validate_python(written) == meant


@pytest.mark.parametrize("written", [True, "nan", "1e", "abc", None])
def test_what_is_no_number_is_refused(written):
    with pytest.raises(ValidationError, match="expected a number"):
        FLOAT.validate_python(written)


@pytest.mark.parametrize("written", ["yes", "true", 1, 0])
def test_only_true_and_false_are_booleans(written):
    with pytest.raises(ValidationError):
        BOOL.validate_python(written)
