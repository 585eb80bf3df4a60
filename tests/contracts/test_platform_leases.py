"""One apply of a stack at a time, on every platform (see `platforms.base`)."""

import time
from dataclasses import replace

import pytest
from puts import REWARD, body, put

from arena_gitops.errors import LeaseLostError, LockedError
from arena_gitops.spec.lease import LeaseRequest


def lease(platform, stack, holder="ann@laptop", ttl_s=60.0):
    return platform.take_lease(LeaseRequest(owner=stack.owner, holder=holder, ttl_s=ttl_s))


def fenced(platform, stack, fence, key=None):
    resource = body(stack.reward(), REWARD)
    return platform.put(REWARD, resource, etag=None, idempotency_key=key or f"k{fence}", fence=fence)


def test_one_at_a_time_and_the_other_is_told_who_holds_it_since_when(platform, stack):
    held = lease(platform, stack)
    with pytest.raises(LockedError, match=r"ann@laptop holds it for apply since \d s") as refusal:
        lease(platform, stack, "bob@desk")
    assert refusal.value.lease["id"] == held.id
    assert refusal.value.lease["holder"] == "ann@laptop"
    assert platform.living_lease(stack.owner) == held
    lease(platform, replace(stack, namespace=f"other-{stack.namespace}"), "bob@desk")


def test_a_released_lease_is_free_and_the_next_fence_is_higher(platform, stack):
    first = lease(platform, stack)
    platform.release_lease(first.id)
    platform.release_lease(first.id)
    assert platform.living_lease(stack.owner) is None
    assert lease(platform, stack, "bob@desk").fence > first.fence


def test_an_expired_lease_may_be_taken_and_its_holder_learns_of_it(platform, stack):
    first = lease(platform, stack, ttl_s=0.01)
    time.sleep(0.02)
    second = lease(platform, stack, "bob@desk")
    with pytest.raises(LeaseLostError):
        platform.renew_lease(first)
    assert platform.living_lease(stack.owner).id == second.id


def test_a_late_heartbeat_revives_a_lease_that_nobody_has_taken(platform, stack):
    first = lease(platform, stack, ttl_s=0.01)
    time.sleep(0.02)
    renewed = platform.renew_lease(first)
    assert (renewed.id, renewed.fence) == (first.id, first.fence)
    assert renewed.expires > first.expires


def test_writes_under_the_lease_arrive_and_others_do_not(platform, stack):
    held = lease(platform, stack)
    with pytest.raises(LockedError, match="ann@laptop"):
        put(platform, stack.reward(), REWARD)
    document = fenced(platform, stack, held.fence)
    with pytest.raises(LockedError):
        platform.retire(REWARD, stack.owner, etag=document.etag)
    platform.retire(REWARD, stack.owner, etag=document.etag, fence=held.fence)
    assert platform.observe(stack.owner).resources == {}


def test_the_late_write_of_an_old_apply_is_refused(platform, stack):
    old = lease(platform, stack)
    platform.release_lease(old.id)
    with pytest.raises(LeaseLostError):
        fenced(platform, stack, old.fence)
    new = lease(platform, stack, "bob@desk")
    with pytest.raises(LeaseLostError):
        fenced(platform, stack, old.fence)
    document = fenced(platform, stack, new.fence)
    with pytest.raises(LeaseLostError):
        platform.retire(REWARD, stack.owner, etag=document.etag, fence=old.fence)
    assert platform.observe(stack.owner).resources == {REWARD: document}
