"""Whatever workers do and whenever they freeze and wake: one holder at a time, one linear history, nothing lost.

A frozen worker is one that does nothing while the clock moves; it wakes by going on with the claim it had.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pool import Pool, code, digest_of, finished, pull_tier, said, started
from sqlalchemy import select
from starlette.testclient import TestClient

from arena_gitops.spec.job import RunState
from arena_runner.server.app import create_app
from arena_runner.server.controllers.runs import RunsController
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.services import runs
from arena_runner.server.services.pair import AT_WORK
from arena_runner.server.settings import TierFile
from arena_runner.server.store.tables import EventRow

LEASE_S = 60.0
WORKERS = st.sampled_from(range(3))


@pytest.fixture
def pool(world):
    made = replace(world, tiers=TierFile(tiers=(pull_tier(),)))
    with TestClient(create_app(made)) as http:
        yield Pool(made, http)


class Holders(RuleBasedStateMachine):
    """Three workers, one run; `holder` is who should be accepted."""

    pool: Pool
    body: object
    examples = 0

    @initialize()
    def begin(self):
        type(self).examples += 1
        self.pool.world.clock.now += 1
        self.run_id = self.pool.submit(
            self.body(f"e{self.examples}", seed=self.examples), f"e{self.examples}"
        )
        self.workers = [self.pool.worker(f"w{n}-{self.examples}") for n in range(3)]
        self.controller = RunsController(self.pool.world, LocalExecutor(self.pool.world))
        self.holder, self.heard, self.saved, self.iteration = None, 0.0, None, 0
        self.ended_by = None

    def teardown(self):
        now = self.pool.world.clock.now
        with self.pool.world.store.write() as session:
            pair = runs.get(session, self.run_id)
            runs.stop(pair, "user", now)
            if pair.state.state in AT_WORK:
                runs.settle_stop(pair, now)

    def state(self):
        return self.pool.status(self.run_id).state

    def told(self, number, answer):
        """The answer must be the one that the holder, or anybody else, is to get."""
        if number == self.ended_by and answer.request.url.path.endswith("/events"):
            assert answer.status_code == 200  # it may repeat its last batch; nothing more is recorded
        elif number == self.holder:
            assert answer.status_code in {200, 201, 204}, answer.text
            self.heard = self.pool.world.clock.now
        else:
            assert (answer.status_code, code(answer)) == (409, "fenced")

    def claimed(self, number):
        return self.workers[number].claim is not None

    @rule(number=WORKERS)
    def ask(self, number):
        worker, queued = self.workers[number], self.state() == RunState.QUEUED
        again = self.holder == number and self.state() == RunState.VALIDATING and worker.seq == 0
        job = worker.take()
        assert (job is not None) == (queued or again)
        if job is not None:
            assert (job["resume"] or {}).get("iteration") == self.saved
            self.holder, self.heard = number, self.pool.world.clock.now

    @rule(number=WORKERS, begins=st.booleans())
    def report(self, number, begins):
        if self.claimed(number):
            worker = self.workers[number]
            events = [started()] if begins and worker.seq == 0 else []
            self.told(number, worker.report(*events, said(worker.name)))

    @rule(number=WORKERS)
    def heartbeat(self, number):
        if self.claimed(number):
            self.told(number, self.workers[number].report())

    @rule(number=WORKERS)
    def save(self, number):
        if self.claimed(number):
            self.iteration += 1
            self.told(number, self.workers[number].save(self.iteration, self.run_id))
            if number == self.holder:
                self.saved = self.iteration

    @rule(number=WORKERS)
    def read(self, number):
        if self.claimed(number) and self.saved:
            wanted = digest_of(f"{self.run_id} {self.saved}".encode())
            answer = self.workers[number].read(wanted)
            assert answer.status_code == (200 if number == self.holder else 409)

    @rule(number=WORKERS)
    def hand_back(self, number):
        if self.claimed(number):
            self.told(number, self.workers[number].hand_back())
            self.holder = None if number == self.holder else self.holder

    @rule(number=WORKERS)
    def finish(self, number):
        if self.claimed(number):
            self.told(number, self.workers[number].report(finished("completed")))
            if number == self.holder:
                self.holder, self.ended_by = None, number

    @rule(seconds=st.sampled_from([1.0, 25.0, 61.0]))
    def time_passes(self, seconds):
        self.pool.world.clock.now += seconds
        self.controller.reconcile()
        if self.holder is not None and self.pool.world.clock.now - self.heard > LEASE_S:
            self.holder = None

    @precondition(lambda self: self.state().ended)
    @rule()
    def resume(self):
        with self.pool.world.store.write() as session:
            runs.resume(runs.get(session, self.run_id), "somebody wants more", self.pool.world.clock.now)
        self.ended_by = None

    @invariant()
    def at_work_is_who_holds_it(self):
        with self.pool.world.store.read() as session:
            state = runs.get(session, self.run_id).state
        assert (state.state in AT_WORK) == (self.holder is not None)
        if self.holder is not None:
            assert state.worker_id == self.workers[self.holder].name

    @invariant()
    def the_history_is_one_line(self):
        with self.pool.world.store.read() as session:
            query = select(EventRow).where(EventRow.run_id == self.run_id).order_by(EventRow.position)
            rows = session.scalars(query).all()
        assert [row.position for row in rows] == list(range(1, len(rows) + 1))
        assert [row.segment for row in rows] == sorted(row.segment for row in rows)
        if self.ended_by is not None:
            assert rows[-1].type == "finished"
        for segment in {row.segment for row in rows}:
            own = [row for row in rows if row.segment == segment]
            assert [row.seq for row in own] == list(range(1, len(own) + 1))
            assert len({row.body["message"] for row in own if row.type == "log"}) <= 1, (
                "two workers in one segment"
            )


def test_there_is_one_holder_and_one_history_whatever_happens(pool, build):
    Holders.pool, Holders.body, Holders.examples = pool, staticmethod(build.experiment), 0
    run_state_machine_as_test(
        Holders,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
