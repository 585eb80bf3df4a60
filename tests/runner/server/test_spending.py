"""What a stack has spent in a month: the cost of its own runs made since the month began."""

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_runner.server.services import resources, runs, spending
from arena_runner.server.services.resources import Put
from arena_runner.server.store.tables import RunStateRow

TEAM = Owner(stack="team")


def run_for(world, build, name, seconds, seed):
    made = resources.put(world, Put(Address("experiment", name), build.experiment(name, seed=seed), None))
    with world.store.write() as session:
        state = session.get(RunStateRow, made.run.run_id)
        state.spent_s, state.spent_credits = seconds, seconds / 3600
    return made.run.run_id


def spent(world, owner=TEAM):
    with world.store.read() as session:
        return spending.this_month(session, world, owner)


def test_only_runs_of_the_stack_and_of_this_month_count(world, build):
    assert spent(world) == 0.0
    first = run_for(world, build, "first", 3600.0, 1)
    run_for(world, build, "second", 1800.0, 2)
    assert spent(world) == 1.5
    assert spent(world, Owner(stack="others")) == 0.0
    with world.store.read() as session:
        assert runs.status(session, world, first).spent_s == 3600.0
    world.clock.now += 32 * 24 * 3600.0
    assert spent(world) == 0.0
