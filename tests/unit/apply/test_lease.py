"""One apply of a stack at a time: waiting, being told, losing the lease, and what a killed apply leaves behind."""

import threading
import time
from dataclasses import replace

import pytest
from stacks import small

from arena_gitops.apply.events import Told
from arena_gitops.apply.journal import unresolved
from arena_gitops.apply.lease import Claim, Grip
from arena_gitops.errors import (
    InterruptedByUserError,
    LeaseLostError,
    LockedError,
    PlatformUnreachableError,
    StaleError,
)
from arena_gitops.spec.lease import LeaseRequest


def somebody(here, stack):
    return here.platform.take_lease(LeaseRequest(owner=stack.owner, holder="bob@desk"))


def patient(here, **claim):
    here.world = replace(here.world, claim=Claim("ann@laptop", **claim))


def told(here):
    return [event.message for event in here.seen(Told)]


def test_an_apply_holds_the_lease_and_gives_it_back(scene):
    here, stack = scene(), small()
    here.platform.on_put = lambda: holders.append(here.platform.living_lease(stack.owner).holder)
    holders = []
    patient(here)
    here.apply(stack)
    assert set(holders) == {"ann@laptop"}
    assert here.platform.living_lease(stack.owner) is None


def test_without_patience_it_is_5_and_says_who_holds_it_and_how_to_end_that(scene):
    here, stack = scene(), small()
    lease = somebody(here, stack)
    with pytest.raises(LockedError, match=rf"bob@desk holds it .*arena unlock {lease.id}") as refusal:
        here.apply(stack)
    assert refusal.value.exit_code == 5
    assert refusal.value.lease["holder"] == "bob@desk"
    assert here.platform.calls == []


def test_it_waits_its_turn_and_tells_once_for_whom(scene):
    here, stack = scene(), small()
    lease = somebody(here, stack)
    patient(here, patience_s=60.0)
    here.clock.meanwhile = [lambda: None, lambda: here.platform.release_lease(lease.id)]
    assert len(here.apply(stack).steps) == 5
    assert len(told(here)) == 1
    assert "waiting up to 60 s" in told(here)[0]
    assert here.clock.time == 2.0


def test_its_patience_ends(scene):
    here, stack = scene(), small()
    somebody(here, stack)
    patient(here, patience_s=3.0)
    with pytest.raises(LockedError):
        here.apply(stack)
    assert here.clock.time == 3.0


def test_who_waited_looks_again_before_the_first_change(scene):
    """Two applies: the second finds what the first has done, and does nothing on an old plan."""
    here, mine = scene(), small(description="mine")
    here.apply(small())
    planned = here.plan(mine)
    lease = somebody(here, mine)

    def theirs():
        here.platform.release_lease(lease.id)
        here.world = replace(here.world, claim=Claim("bob@desk"))
        here.apply(small(description="theirs"))

    patient(here, patience_s=60.0)
    here.clock.meanwhile = [theirs]
    from arena_gitops.app import Consent, apply

    with pytest.raises(StaleError, match="experiment/words-grpo was changed"):
        apply(here.world, planned, mine.state(), Consent.APPROVED)


def test_asked_to_stop_while_it_waits_it_stops(scene):
    here, stack = scene(), small()
    somebody(here, stack)
    patient(here, patience_s=1000.0)
    stop = threading.Event()
    here.world = replace(here.world, stopping=stop.is_set)
    here.clock.meanwhile = [stop.set]
    with pytest.raises(InterruptedByUserError):
        here.apply(stack)


def test_a_lease_lost_in_the_middle_stops_the_apply_and_the_journal_is_whole(scene, tmp_path):
    here, stack = scene(journal=tmp_path / "j.ndjson"), small()

    def unlock_after_two():
        if len(here.platform.called("put")) == 3:
            here.platform.release_lease(here.platform.living_lease(stack.owner).id)
            somebody(here, stack)

    here.platform.on_put = unlock_after_two
    with pytest.raises(LeaseLostError, match="lost after 2 of 5 changes") as failure:
        here.apply(stack)
    assert failure.value.exit_code == 5
    assert len(here.platform.called("put")) == 3
    assert unresolved(tmp_path / "j.ndjson") == ()
    assert here.platform.living_lease(stack.owner).holder == "bob@desk"


def test_a_heartbeat_keeps_the_lease_alive_and_notices_its_loss(scene):
    here, stack = scene(), small()
    grip = Grip(
        here.platform, stack.owner, Claim("ann@laptop", ttl_s=0.5, heartbeat_s=0.02), here.events.append
    )
    with grip.held(here.clock, lambda: False):
        time.sleep(0.7)
        lease = here.platform.living_lease(stack.owner)
        assert (lease.holder, lease.fence) == ("ann@laptop", grip.fence)
        here.platform.release_lease(lease.id)
        for _ in range(200):
            if grip.lost:
                break
            time.sleep(0.01)
    assert grip.lost


def test_a_heartbeat_without_an_answer_is_told_and_tried_again(scene):
    here, stack = scene(), small()
    claim = Claim("ann@laptop", heartbeat_s=0.01)

    def no_answer(lease):
        raise PlatformUnreachableError("no route")

    here.platform.renew_lease = no_answer
    with Grip(here.platform, stack.owner, claim, here.events.append).held(here.clock, lambda: False) as grip:
        for _ in range(200):
            if len(told(here)) > 1:
                break
            time.sleep(0.01)
        assert not grip.lost
    assert told(here)[0] == "heartbeat: no route"


def test_the_lease_of_a_killed_apply_of_this_checkout_is_given_back(scene, tmp_path):
    here, stack = scene(journal=tmp_path / "j.ndjson"), small()
    (tmp_path / "j.lease").write_text(somebody(here, stack).id)
    here.apply(stack)
    assert told(here) == ["gave back the lease of an earlier apply here that was killed"]
    assert (tmp_path / "j.lease").read_text() == ""


def test_the_lease_of_a_living_apply_of_this_checkout_is_not(scene, tmp_path):
    here, stack = scene(journal=tmp_path / "j.ndjson"), small()
    first = Grip(here.platform, stack.owner, Claim("ann"), here.events.append, tmp_path / "j.lease")
    with first.held(here.clock, lambda: False), pytest.raises(LockedError, match="ann holds it"):
        here.apply(stack)
    here.apply(stack)
