"""The bench of promotions in small: nothing fails, nothing is mixed, a killed model server comes back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openai")
BENCH = Path(__file__).resolve().parents[3] / "runner" / "bench" / "promotions.py"


def test_clients_that_stream_notice_no_promotion_and_no_rollback():
    sizes = ("--switches", "6", "--clients", "2", "--deployments", "3")
    done = subprocess.run([sys.executable, BENCH, *sizes], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["answers"] > 6
    assert (figures["failed"], figures["mixed"]) == (0, 0), figures["examples"]
    assert figures["killed"]["meanwhile"]["status 503"] > 0
    assert figures["memory"]["ratio"] <= 1.3
