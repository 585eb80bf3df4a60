"""Several calls at a time, never what depends on one another, and the end comes soon when it is asked for."""

import threading
import time
from dataclasses import replace

import pytest
from patience import LONG, slowed
from stacks import Stack, small

from arena_gitops.apply.journal import unresolved
from arena_gitops.apply.parallel import each, while_patient
from arena_gitops.errors import InterruptedByUserError, PartialApplyError, PlatformError


def broad(count):
    stack = Stack().dataset().reward()
    for number in range(count):
        stack.experiment(f"e{number}", set={"mutation.rand_seed": number})
    return stack


def test_what_does_not_depend_on_one_another_is_made_beside_each_other(scene):
    here, together = scene(), threading.Barrier(4, timeout=10)
    here.world = replace(here.world, parallel=4)
    here.platform.on_put = lambda: (
        together.wait() if here.platform.calls[-1][1].startswith("experiment/") else None
    )
    assert len(here.apply(broad(4)).steps) == 6
    assert here.platform.called("put")[:2] in (
        ["dataset/words", "reward/exact"],
        ["reward/exact", "dataset/words"],
    )


def test_no_more_at_a_time_than_was_allowed():
    now, most, lock = [0], [0], threading.Lock()

    def work(_):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1

    assert len(list(each(range(12), work, at_most=3))) == 12
    assert most[0] <= 3


def test_after_an_exception_nothing_new_is_begun():
    begun = []

    def work(number):
        begun.append(number)
        if number == 1:
            raise PlatformError("no")
        return number

    with pytest.raises(PlatformError):
        list(each(range(100), work, at_most=1))
    assert begun == [0, 1]


def test_a_failure_is_told_as_a_table_of_what_was_done_failed_and_skipped(scene):
    here = scene({"reward/exact": PlatformError("disk full")})
    with pytest.raises(PartialApplyError) as failure:
        here.apply(small())
    assert str(failure.value).splitlines()[1:] == [
        "  done     project/words",
        "  done     dataset/words",
        "  failed   reward/exact           disk full",
        "  skipped  experiment/words-grpo  dependency failed: reward/exact",
        "  skipped  deployment/words       dependency failed: experiment/words-grpo",
    ]


def test_a_call_that_gets_no_answer_does_not_hold_up_the_end(scene, tmp_path):
    """The journal keeps the intent; the next apply looks whether it arrived, and goes on."""
    hung, stop = threading.Event(), threading.Event()
    here = scene(journal=tmp_path / "j.ndjson", stopping=stop.is_set)

    def hang():
        if len(here.platform.called("put")) == 3:
            stop.set()
            hung.wait(LONG)

    here.platform.on_put = hang
    began = time.monotonic()
    with pytest.raises(InterruptedByUserError, match="may or may not be done"):
        here.apply(small())
    assert time.monotonic() - began < 5 * slowed()
    (intent,) = unresolved(tmp_path / "j.ndjson")
    assert intent.address == here.platform.called("put")[-1]
    assert here.platform.living_lease(small().owner) is None
    here.platform.on_put = lambda: None
    here.world = replace(here.world, stopping=lambda: False)
    here.apply(small())
    hung.set()
    assert not here.plan(small()).has_changes


def test_what_ends_in_time_is_waited_for():
    assert while_patient(lambda: time.sleep(0.2) or "done", lambda: True, grace_s=5.0) == "done"
