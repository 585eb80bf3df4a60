"""Numbers as people write them in YAML: `1_000_000`, `1e6` for a whole number, `1e-5`; and no booleans.

YAML loaders disagree about these (`1e-5` is text to a YAML 1.1 loader, `1e6` a float to all), so a document
must mean the same whichever one read it. The schema says what a value is: `Int` and `Float` accept a number
written in any of these ways, `Bool` accepts only `true` and `false`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, StrictBool
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

INT_TEXT = r"^[+-]?[0-9][0-9_]*([eE]\+?[0-9]+)?$"
"""A whole number that some YAML parser takes for text: `1_000_000`, `1e6`."""
NUMBER_TEXT = r"^[+-]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][+-]?[0-9]+)?$"
"""A number that some YAML parser takes for text: `1e-5`."""


def read_int(value: Any) -> int:
    """A whole number, however it was written; refuses booleans and fractions."""
    number = _number(value, INT_TEXT, "an integer")
    if isinstance(number, float) and not number.is_integer():
        raise _unlike("an integer", value)
    return int(number)


def read_float(value: Any) -> float:
    """A number, however it was written; refuses booleans."""
    return float(_number(value, NUMBER_TEXT, "a number"))


def shown(value: Any) -> str:
    """A value short enough for a message."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…{text[-1]}"


def _number(value: Any, text_pattern: str, expected: str) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(text_pattern, value):
        digits = value.replace("_", "")
        return float(digits) if set(digits) & set(".eE") else int(digits)
    raise _unlike(expected, value)


def _unlike(expected: str, value: Any) -> PydanticCustomError:
    return PydanticCustomError("number", f"expected {expected}, got {{value}}", {"value": shown(value)})


class _AlsoText:
    """Says in the JSON Schema that a number may be written in a way an editor takes for text."""

    def __init__(self, json_type: str, pattern: str) -> None:
        self.json_type = json_type
        self.pattern = pattern

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "type": [self.json_type, "string"], "pattern": self.pattern}


Int = Annotated[int, BeforeValidator(read_int), _AlsoText("integer", INT_TEXT)]
Float = Annotated[float, BeforeValidator(read_float), _AlsoText("number", NUMBER_TEXT)]
Bool = StrictBool
