"""Many applies of one stack at once: each is made whole or refused, nothing is lost, nothing is trained twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from stacks import Stack

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.apply.lease import Claim
from arena_gitops.errors import LockedError, StaleError
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript

APPLIES = 100
EXPERIMENTS = 10


def variant(number):
    """The same names, each with a description of its own."""
    stack = Stack().project().dataset().reward()
    for n in range(EXPERIMENTS):
        stack.experiment(f"e{n}", description=f"by {number}", set={"mutation.rand_seed": n})
    return stack


class Watched(MemoryPlatform):
    """Remembers every description that was written to an experiment, in order."""

    def __init__(self):
        super().__init__(runs=RunScript.stays_queued())
        self.written = []

    def put(self, address, body, **under):
        document = super().put(address, body, **under)
        if address.kind == "experiment":
            self.written.append(str(body.spec["description"]))
        return document


@pytest.mark.parametrize("patience_s", [0.0, 30.0])
def test_a_hundred_applies_of_one_stack(patience_s):
    platform = Watched()

    def one(number):
        world = World(platform, claim=Claim(f"apply {number}", patience_s=patience_s), parallel=4)
        desired = variant(number).state()
        planned = plan(world, desired, target="local")
        try:
            apply(world, planned, desired, Consent.APPROVED)
        except (LockedError, StaleError) as refused:
            return type(refused).__name__
        return "applied"

    with ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(one, range(APPLIES)))
    assert "applied" in outcomes
    # one after the other: the writes of an apply are never mixed with those of another
    changes = sum(a != b for a, b in zip(platform.written, platform.written[1:], strict=False))
    assert changes == outcomes.count("applied") - 1
    assert len(platform.written) == EXPERIMENTS * outcomes.count("applied")
    documents = platform.observe(variant(0).owner).resources.values()
    assert len({d.spec["description"] for d in documents if d.kind == "experiment"}) == 1
    work = [(run.status.fingerprint, run.rerun) for run in platform._ledger.runs.values()]
    assert len(work) == len(set(work)) == EXPERIMENTS
    assert platform.living_lease(variant(0).owner) is None
