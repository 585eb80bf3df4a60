"""A platform to plan against, and the shortest way to say what was there before."""

import pytest

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.spec.resource import Address


class Scene:
    """A memory platform with stacks applied to it, and plans of the next one."""

    def __init__(self, **platform):
        self.platform = MemoryPlatform(**platform)
        self.world = World(self.platform)

    def applied(self, *stacks):
        for stack in stacks:
            apply(self.world, self.plan(stack), stack.state(), Consent.APPROVED)
        return self

    def plan(self, stack, **options):
        return plan(self.world, stack.state(), target="local", **options)

    def change(self, stack, address="experiment/words-grpo", **options):
        """The one change of an address; None when the plan has nothing to say about it."""
        changes = self.plan(stack, **options).changes
        return next((change for change in changes if change.address == address), None)

    def document(self, stack, address="experiment/words-grpo"):
        return self.platform.observe(stack.owner).resources[Address.parse(address)]

    def run(self, stack):
        return self.document(stack).run.run_id


@pytest.fixture
def scene():
    return Scene
