"""The order in which the sandbox's processes first speak is up to the machine, and must not matter."""

from __future__ import annotations

import json
import os
import struct
import types

import pytest

from arena_runner.sandbox import Limits
from arena_runner.sandbox.process import Process

PID, WALLS = {"pid": 7}, {"walls": []}
READY = {"ready": True, "file": "rewards/x.py", "line": 3}
ORDERS = [(PID, WALLS, READY), (WALLS, PID, READY), (WALLS, READY, PID)]
ANSWER = {"score": 1.0}


@pytest.fixture
def process():
    """A process whose replies this test writes itself."""
    process = object.__new__(Process)
    process._replies, process.written = os.pipe()
    process._requests, process._buffer = os.open(os.devnull, os.O_WRONLY), bytearray()
    process._limits, process._inner_pid, process.calls = Limits(), None, 0
    process._popen = types.SimpleNamespace(poll=lambda: None)
    yield process
    for descriptor in (process._replies, process._requests, process.written):
        os.close(descriptor)


@pytest.mark.parametrize("order", ORDERS)
def test_the_first_answer_is_an_answer_whoever_spoke_first(process, order):
    for frame in (*order, ANSWER):
        body = json.dumps(frame).encode()
        os.write(process.written, struct.pack(">I", len(body)) + body)

    process.load()

    assert list(process.call([("q", "a", "c")])) == [ANSWER]
