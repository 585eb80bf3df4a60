"""The load script behind the figures in docs/operations.md, in small: it runs, and what it checks holds."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[3] / "runner" / "bench"


def told(script, *args):
    done = subprocess.run(
        [sys.executable, BENCH / script, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_under_load_nothing_fails_and_nothing_is_made_twice():
    sizes = ("--resources", "40", "--rate", "40", "--seconds", "2", "--submissions", "20", "--clients", "10")
    figures = told("load.py", *sizes)
    assert figures["state"]["statuses"]["304"] > 70
    assert set(figures["state"]["statuses"]) <= {"200", "304"}
    assert figures["submissions"]["statuses"] == {"200": 40}
    assert (figures["submissions"]["runs"], figures["submissions"]["duplicates"]) == (20, 0)
