"""Many at once: what one of them was given no other gets, and nothing is counted twice. On both databases."""

import threading

from sqlalchemy import func, select

from arena_gitops.spec.job import Log, Started
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ClaimRequest, EventBatch
from arena_runner.server.controllers.deployments import DeploymentsController
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import jobs, resources, sessions
from arena_runner.server.store.tables import (
    CheckpointRow,
    EventRow,
    IdempotencyRow,
    ResourceRow,
    RevisionRow,
    RunRow,
    VersionRow,
)

MANY = 8
DIGEST = "sha256:" + "d" * 64


def together(*calls):
    """What each call gave or raised; all of them begin at the same moment."""
    begin = threading.Barrier(len(calls))
    answers = [None] * len(calls)

    def one(place, call):
        begin.wait()
        try:
            answers[place] = call()
        except Exception as problem:  # noqa: BLE001 - the test looks at it
            answers[place] = problem

    threads = [threading.Thread(target=one, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def put(world, body, name="exp", *, etag=None, key=None, kind="experiment"):
    return resources.put(world, resources.Put(Address(kind, name), body, etag, key))


def claim(world, worker):
    return jobs.claim(world, ClaimRequest(worker_id=worker, tier="local"))


def count(world, table):
    with world.store.read() as session:
        return session.scalar(select(func.count()).select_from(table))


def test_no_two_workers_get_one_run(world, build):
    for n in range(3):
        put(world, build.experiment(f"e{n}", seed=n), f"e{n}")
    claims = together(*[lambda n=n: claim(world, f"w{n}") for n in range(MANY)])
    given = [c.job.run_id for c in claims if c is not None]
    assert (len(given), len(set(given))) == (3, 3)


def test_of_many_who_make_an_address_one_succeeds_and_the_others_are_told(world, build):
    answers = together(*[lambda n=n: put(world, build.experiment(seed=n)) for n in range(MANY)])
    refused = [a.code for a in answers if isinstance(a, RefusedError)]
    assert refused == ["stale"] * (MANY - 1)
    assert [count(world, table) for table in (ResourceRow, VersionRow, RunRow)] == [1, 1, 1]


def test_of_many_who_change_what_they_saw_one_succeeds(world, build):
    etag = put(world, build.experiment()).etag
    answers = together(
        *[lambda n=n: put(world, build.experiment(seed=n + 2), etag=etag) for n in range(MANY)]
    )
    assert sum(not isinstance(a, Exception) for a in answers) == 1
    with world.store.read() as session:
        assert sorted(session.scalars(select(VersionRow.version))) == [1, 2]


def test_a_key_sent_many_times_at_once_starts_one_run_and_gets_one_answer(world, build):
    answers = together(*[lambda: put(world, build.experiment(), key="k") for _ in range(MANY)])
    assert len({a.model_dump_json() for a in answers}) == 1
    assert [count(world, table) for table in (ResourceRow, RunRow, IdempotencyRow)] == [1, 1, 1]


def test_equal_work_asked_for_at_once_is_one_run(world, build):
    """Two experiments of equal content share a run, also when neither sees the other."""
    answers = together(
        *[lambda n=n: put(world, build.experiment("same", seed=1), f"e{n}") for n in range(MANY)]
    )
    assert len({a.run.run_id for a in answers}) == 1
    assert count(world, RunRow) == 1


def test_events_sent_twice_at_once_get_one_place_each(world, build):
    put(world, build.experiment())
    claimed = claim(world, "w")
    more = {"rows_in_flight": 1, "tokens_per_backward": 1, "versions": {}, "model": None}
    first = Started(seq=1, ts=0, device="cpu", dtype="float32", threads=1, members=2, max_steps=16, **more)
    rest = [Log(seq=n, ts=0, level="info", message=f"line {n}") for n in range(2, 20)]
    batch = EventBatch(fence=claimed.fence, events=(first, *rest))
    report = lambda: jobs.report(world, claimed.job.run_id, 0, batch)  # noqa: E731
    assert [receipt.accepted_seq for receipt in together(*[report] * MANY)] == [19] * MANY
    with world.store.read() as session:
        rows = session.execute(select(EventRow.position, EventRow.seq).order_by(EventRow.position)).all()
    assert rows == [(n, n) for n in range(1, 20)]


def test_reports_of_many_runs_at_once_mix_no_positions(world, build):
    for n in range(MANY):
        put(world, build.experiment(f"e{n}", seed=n), f"e{n}")
    claims = [claim(world, f"w{n}") for n in range(MANY)]

    def report(claimed):
        for n in range(1, 6):
            events = (Log(seq=n, ts=0, level="info", message="x"),)
            jobs.report(world, claimed.job.run_id, 0, EventBatch(fence=claimed.fence, events=events))

    assert together(*[lambda c=c: report(c) for c in claims]) == [None] * MANY
    with world.store.read() as session:
        for claimed in claims:
            of_run = select(EventRow.position).where(EventRow.run_id == claimed.job.run_id)
            assert sorted(session.scalars(of_run)) == [1, 2, 3, 4, 5]


def test_two_looks_at_a_deployment_begin_one_rollout(world, build):
    run_id = put(world, build.experiment()).run.run_id
    put(world, build.deployment(), "chat", kind="deployment")
    with world.store.write() as session:
        export = {"step": 8, "member": 0, "generation": 1, "fitness": 1.0, "digest": DIGEST, "files": {}}
        more = {"size_bytes": 3 * 2**31, "hyperparameters": {}, "position": 1}
        session.add(CheckpointRow(run_id=run_id, **export, **more))
        jobs.runs.end(jobs.runs.get(session, run_id), "completed", 0.0)
    looks = [DeploymentsController(world) for _ in range(MANY)]
    assert together(*[lambda c=c: c._decide("main", "chat") for c in looks]) == [None] * MANY
    assert count(world, RevisionRow) == 1


def test_what_many_say_in_one_conversation_is_all_kept(world):
    owner = sessions.Owner("main", "chat", "me")
    together(*[lambda n=n: sessions.append(world, owner, "s", f"q{n}", f"a{n}") for n in range(MANY)])
    said = [m.content for m in sessions.history(world, owner, "s")]
    assert sorted(said[::2]) == [f"q{n}" for n in range(MANY)]
    assert [m.replace("q", "a") for m in said[::2]] == said[1::2]


def test_a_reader_sees_one_moment(world, build):
    """What is committed between two looks of one session is not seen by the second."""
    put(world, build.experiment())
    with world.store.read() as session:
        query = select(func.count()).select_from(ResourceRow)
        before = session.scalar(query)
        put(world, build.experiment("other", seed=2), "other")
        assert session.scalar(query) == before
    assert count(world, ResourceRow) == before + 1
