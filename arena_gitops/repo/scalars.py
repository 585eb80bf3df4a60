"""What a plain YAML scalar means: the YAML 1.2 core schema, with underscores in numbers.

YAML 1.1 readers turn `no` into false, `1:30` into 90 and `017` into 15; this schema does none of that. What
other readers would take for a date stays text here.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INT = re.compile(r"[-+]?[0-9][0-9_]*")
_BASED = re.compile(r"0o[0-7_]+|0x[0-9a-fA-F_]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?")

_MAX_DIGITS = 400
"""Longer integers are nobody's setting, and Python refuses to read those of more than 4,300 digits."""


class ScalarError(ValueError):
    """A plain scalar has no value that JSON could hold."""


def resolve(text: str) -> Scalar:
    """Value of a plain (unquoted) scalar.

    Raises:
        ScalarError: it is NaN, an infinity or a number too large to hold.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789.+-":
        return text
    return _number(text)


def looks_like_date(text: str) -> bool:
    """Whether a YAML 1.1 reader would make a date of this plain scalar."""
    return bool(_DATE.fullmatch(text))


def _number(text: str) -> Scalar:
    if _INT.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise ScalarError(f"a number of {len(text)} digits is too large; quote it if it is text")
        return int(text.replace("_", ""))
    if _BASED.fullmatch(text):
        return int(text[2:].replace("_", ""), 8 if text[1] == "o" else 16)
    if _NOT_FINITE.fullmatch(text):
        raise ScalarError(f"{text} is not a number JSON can hold")
    if _FLOAT.fullmatch(text):
        value = float(text.replace("_", ""))
        if math.isinf(value):
            raise ScalarError(f"{text} reads as a number too large to hold; quote it if it is text")
        return value
    return text
