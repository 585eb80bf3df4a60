"""The script that is run where there is a GPU, as far as a CPU can tell: it rehearses, and it refuses plainly."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena_runner.engines.base import Completion, Request

BENCH = Path(__file__).resolve().parents[3] / "runner" / "bench"


@pytest.fixture
def gpu_check(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delenv("ARENA_VLLM_PYTHON", raising=False)
    import gpu_check

    return gpu_check


def test_a_rehearsal_on_the_cpu_holds_and_says_what_it_left_out(gpu_check, capsys):
    assert gpu_check.main(["--device", "cpu"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "a rehearsal" in lines[0]
    words = {
        check.__name__: line[:12].strip() for check, line in zip(gpu_check.CHECKS, lines[1:], strict=True)
    }
    assert [name for name, word in words.items() if word == "not checked"] == ["flash", "vllm"]
    assert set(words.values()) == {"ok", "not checked"}


def test_a_machine_without_cuda_is_refused_with_a_status_of_its_own():
    done = subprocess.run(
        [sys.executable, str(BENCH / "gpu_check.py")],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 3
    assert done.stdout.startswith("There is no CUDA on this machine: nothing was checked.")


@pytest.mark.parametrize("value", [0.2, math.nan])
def test_too_large_a_difference_is_wrong_and_so_is_none(gpu_check, value):
    with pytest.raises(gpu_check.WrongError):
        gpu_check.demand("differ by", value, 0.1)


def test_a_check_that_is_wrong_or_crashes_is_told_and_hides_no_other(gpu_check, capsys):
    def broken(here):
        raise RuntimeError("no kernel image")

    assert not gpu_check.told(broken, None)
    assert "WRONG" in capsys.readouterr().out


def test_logprobs_that_are_not_the_trainers_are_seen(gpu_check, learner):
    request = Request(1, (5, 6, 7), 2, 1, 0.9)
    told = Completion((8, 9), (0.0, 0.0), "length")

    assert gpu_check.off_by(learner, request, told) > 0.1
