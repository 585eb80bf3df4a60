"""Suspicions are read from a reward's source, under whatever name the suspicious thing is imported."""

from __future__ import annotations

import pytest

from arena_gitops.spec.reward_source import suspicions


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("def reward(q, a, c):\n    return eval(c)\n", 2, "eval()"),
        ("import pickle\n", 1, "import pickle:"),
        ("from subprocess import run\n", 1, "import subprocess:"),
        ("import os as o\n\no.system('ls')\n", 3, "os.system"),
        ("from os import system as s\ns('ls')\n", 2, "os.system"),
        ("import signal\nsignal.alarm(1)\n", 2, "signal.alarm"),
        ("import os\nos.system = None\n", 2, "os.system"),
        ("from threading import Thread\n", 1, "import threading:"),
        ("def reward(q, a, c):\n    return max(map(eval, c.split()))\n", 2, "eval()"),
        ("import builtins\ngetattr(builtins, 'exec')('1')\n", 2, "exec()"),
        ("__builtins__['eval']('1')\n", 1, "eval()"),
        ("import os\ngetattr(os, 'popen')('ls')\n", 2, "os.popen"),
        ("import os\nsetattr(os, 'open', None)\n", 2, "os in part"),
        ("import os\ndel os.remove\n", 2, "os.remove"),
        ("import sys\nsys.modules['socket'] = None\n", 2, "a name in sys.modules"),
        ("from code import InteractiveInterpreter\n", 1, "import code:"),
        ("import resource\nresource.setrlimit(0, (1, 1))\n", 2, "resource.setrlimit"),
        (
            "from sympy.parsing.sympy_parser import parse_expr as p\np('1')\n",
            2,
            "sympy.parsing.sympy_parser.parse_expr",
        ),
    ],
)
def test_a_suspicion_has_its_line_and_name(source, line, what):
    assert [(s.line, s.what) for s in suspicions(source)] == [(line, what)]


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('x')\n",
        "from numexpr import evaluate as eval\neval('1')\n",
        "import os\nos.path.join('a', 'b')\n",
        "from . import pickle\n",
        "import sys\nx = sys.modules['re']\n",
        "getattr(object, 'name')\n",
        "def reward(:\n",
        "x = '\\0'",
    ],
)
def test_ordinary_code_and_code_that_does_not_parse_raise_none(source):
    assert suspicions(source) == ()


def test_a_suspicion_says_why():
    (found,) = suspicions("exec('1')")
    assert str(found) == "exec() runs text as code; a completion that reaches it decides its own score"
