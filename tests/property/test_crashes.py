"""An apply that is killed at any point of its journal or of a call, and the same command again, is one apply."""

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import Stack

from arena_gitops.app import World, plan
from arena_gitops.apply.engine import Engine
from arena_gitops.apply.journal import Journal, unresolved
from arena_gitops.apply.lease import Claim, Grip
from arena_gitops.platforms.memory import MemoryPlatform

POINTS = ("before_line", "torn_line", "after_line", "before_call", "after_call")


class Killed(BaseException):
    """The process ends here: no `except Exception` of ours may make something of it."""


class Fate:
    """Counts points of one kind; at the last one everything ends, for every thread."""

    def __init__(self, point, left):
        self.point, self.left, self.dead = point, left, False

    def meet(self, point):
        if self.dead:
            raise Killed
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                self.dead = True
                raise Killed


class Mortal(MemoryPlatform):
    fate = Fate("", 0)

    def put(self, address, body, **under):
        self.fate.meet("before_call")
        document = super().put(address, body, **under)
        self.fate.meet("after_call")
        return document

    def release_lease(self, lease_id):
        if not self.fate.dead:
            super().release_lease(lease_id)


class MortalJournal(Journal):
    fate = Fate("", 0)

    def _write(self, line):
        self.fate.meet("before_line")
        if self.fate.point == "torn_line" and self.fate.left == 1:
            with self._path.open("a") as file:
                file.write('{"seq": 9')
        self.fate.meet("torn_line")
        super()._write(line)
        self.fate.meet("after_line")


def run(platform, fate, stack, folder, parallel):
    """One process: it plans, takes the lease and works until its fate."""
    platform.fate = fate
    world = World(platform)
    note, path = folder / "j.lease", folder / "j.ndjson"
    grip = Grip(platform, stack.owner, Claim("ann"), world.listener, note)
    journal = MortalJournal(path, lambda: 0.0)
    journal.fate = fate
    try:
        with grip.held(world.clock, lambda: False):
            planned = plan(world, stack.state(), target="local")
            return Engine(platform, journal, parallel=parallel, grip=grip).apply(planned, stack.state())
    finally:
        if fate.dead:  # a killed process tidies nothing up
            platform.fate = Fate("", 0)
            note.write_text(platform.living_lease(stack.owner).id)


def stack_of(experiments, deployed):
    stack = Stack().project().dataset().reward()
    for number in range(experiments):
        base = f"e{number - 1}" if number % 2 else None
        stack.experiment(f"e{number}", base=base, set={"mutation.rand_seed": number})
        if deployed:
            stack.deployment(f"e{number}", experiment=f"e{number}")
    return stack


@given(st.integers(1, 3), st.booleans(), st.sampled_from(POINTS), st.integers(1, 18), st.sampled_from([1, 4]))
@settings(max_examples=120, deadline=None)
def test_killed_at_any_point_the_same_command_again_is_one_apply(
    experiments, deployed, point, when, parallel
):
    stack = stack_of(experiments, deployed)
    platform, whole = Mortal(), MemoryPlatform()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "j.ndjson").touch()
        with suppress(Killed):
            run(platform, Fate(point, when), stack, folder, parallel)
        run(platform, Fate("", 0), stack, folder, parallel)
        assert unresolved(folder / "j.ndjson") == ()
    world = World(whole)
    Engine(whole, Journal(None, lambda: 0.0)).apply(plan(world, stack.state(), target="local"), stack.state())
    ours, theirs = (p.observe(stack.owner).resources for p in (platform, whole))
    assert {a: (d.spec, d.version) for a, d in ours.items()} == {
        a: (d.spec, d.version) for a, d in theirs.items()
    }
    work = [(run.status.fingerprint, run.rerun) for run in platform._ledger.runs.values()]
    assert len(work) == len(set(work)) == experiments
    assert not plan(World(platform), stack.state(), target="local").has_changes
