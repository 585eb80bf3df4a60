"""speed: a plan of a thousand resources that finds nothing to do, as a process, in CPU seconds."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """Figures of `runner/bench/plan.py`, cold and warm."""
    sys.path.insert(0, str(ROOT / "runner" / "bench"))
    try:
        import plan
    finally:
        sys.path.pop(0)
    return plan.measured(1000, tmp_path_factory.mktemp("speed"))


@pytest.mark.slow
def test_speed_warm_it_takes_less_than_four_tenths_of_a_second(taken):
    assert taken["warm"].cpu_s <= 0.4
    assert taken["warm"].out.endswith(taken["cold"].out.partition("\n")[2])


@pytest.mark.slow
def test_speed_cold_it_has_not_become_much_slower(taken):
    """The gate of 1.5 s is measured by `make bench`: other processes of a test run cost a half more."""
    assert taken["cold"].cpu_s <= 2.5
    assert taken["cold"].first_line_s <= 1.0
