"""A plan may be made with a token that only looks: it reads code and rows of resources, and nothing else."""

import pytest
from stacks import Stack

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import PutResource
from arena_runner.server.api.blobs import _check_viewer_may_read
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import resources


def test_a_viewer_reads_what_a_living_resource_is_made_of_and_nothing_else(world):
    stack = Stack().reward()
    reward = stack.resources[Address("reward", "exact")]
    (digest,) = reward.spec["files"].values()
    adapter = world.blobs.put(b"weights")
    with pytest.raises(RefusedError, match="no part of a resource"):
        _check_viewer_may_read(world, digest)
    body = PutResource(owner=stack.owner, spec=dict(reward.spec), fingerprint=reward.fingerprint)
    made = resources.put(world, resources.Put(reward.address, body, None))
    _check_viewer_may_read(world, digest)
    with pytest.raises(RefusedError, match="no part of a resource"):
        _check_viewer_may_read(world, adapter)
    resources.retire(world, reward.address, stack.owner, made.etag)
    with pytest.raises(RefusedError, match="no part of a resource"):
        _check_viewer_may_read(world, digest)
