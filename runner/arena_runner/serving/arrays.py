"""The published wire format of arrays: a leaf is base64 of a `.npy` file; dicts and tuples keep their shape.

Read by hand, not by `numpy.load`: that would unpickle, open archives, or make room for whatever a header claims.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import JsonValue

from arena_gitops.errors import ArenaError

NUMBERS = "biuf"
"""kinds of dtype: booleans, integers, floats"""
TEXT = "U"
"""kind of dtype: text"""
Header = tuple[tuple[int, ...], bool, np.dtype[Any], int]
"""shape, whether columns come first, dtype, and where the content begins"""
HEAD, KEPT = 10, 1024
"""bytes before a header of version 1, and of the longest that is remembered"""
WANTED = "expected base64 of a .npy file"


class WireError(ArenaError):
    """What came is no array; the message says where and what was expected."""


def decode_text(value: JsonValue, at: str) -> list[str]:
    """One array of text, (rows,) or (rows, 1)."""
    found = _array(value, at, TEXT, "text") if isinstance(value, str) else None
    if found is None or found.ndim not in {1, 2} or found.size != len(found) or not found.size:
        shape = "" if found is None else f", got {found.shape}"
        raise WireError(f"{at}: expected one array of text of shape (rows,){shape}")
    return [str(one) for one in found.ravel()]


def decode(value: JsonValue, at: str) -> Any:
    """Arrays, in mappings and tuples; `at` names the value in messages."""
    match value:
        case str():
            return _array(value, at)
        case dict():
            return {name: decode(one, f"{at}.{name}") for name, one in value.items()}
        case list():
            return tuple(decode(one, f"{at}.{n}") for n, one in enumerate(value))
    raise WireError(f"{at}: {WANTED}, or an object or list of such")


def encode(value: NDArray[Any] | Mapping[str, NDArray[Any]]) -> JsonValue:
    """Arrays as they travel."""
    if isinstance(value, Mapping):
        return {name: encode(one) for name, one in value.items()}
    head = _head(value.dtype, value.shape)
    return base64.b64encode(head + value.tobytes()).decode("ascii")


def _array(text: str, at: str, kinds: str = NUMBERS, called: str = "numbers") -> NDArray[Any]:
    try:
        raw = base64.b64decode(text, validate=True)
        end = HEAD + int.from_bytes(
            raw[HEAD - 2 : HEAD], "little"
        )  # of a header of version 1, which is the usual one
        known = raw[6:8] == b"\x01\x00" and end <= KEPT
        shape, fortran, dtype, begin = _known(raw[:end]) if known else _header(raw)
    except (ValueError, binascii.Error, SyntaxError) as problem:
        raise WireError(f"{at}: {WANTED} ({problem})") from problem
    if dtype.kind not in kinds:
        raise WireError(f"{at}: expected an array of {called}, got dtype {dtype}")
    if len(raw) - begin != math.prod(shape) * dtype.itemsize:
        raise WireError(f"{at}: {WANTED}; its header says {shape} of {dtype}, which is not what follows")
    flat: NDArray[Any] = np.frombuffer(raw, dtype, offset=begin)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(raw: bytes) -> Header:
    file = io.BytesIO(raw)
    version = npy.read_magic(file)
    if version == (1, 0):
        return (*npy.read_array_header_1_0(file), file.tell())
    if version == (2, 0):
        return (*npy.read_array_header_2_0(file), file.tell())
    raise ValueError(f"version {version} of the format")


_known = lru_cache(maxsize=256)(_header)
"""callers send the same few headers again and again, and reading one takes longer than a small policy"""


@lru_cache(maxsize=256)
def _head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    into = io.BytesIO()
    descr = npy.dtype_to_descr(dtype)
    npy.write_array_header_1_0(into, {"descr": descr, "fortran_order": False, "shape": shape})
    return into.getvalue()
