"""An answer is built once for every change, knows every change made before the question, and no more are kept than few."""

import threading
import time

import httpx
import pytest
from sqlalchemy import delete, text, update

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_runner.server import kept
from arena_runner.server.kept import Answer, Kept
from arena_runner.server.services import resources, states
from arena_runner.server.store.tables import MetaRow

TEAM = Owner(stack="team")


class Builder:
    """Counts what it builds."""

    def __init__(self):
        self.built, self.commits, self.now, self.slow = 0, 0, 0.0, None

    def __call__(self):
        self.built += 1
        if self.slow:
            self.slow.wait(5)
        return Answer(f"e{self.built}", b"")

    def ask(self, answers, key="a"):
        return answers.get(key, lambda: self.commits, self).etag


@pytest.fixture
def builder():
    return Builder()


@pytest.fixture
def answers(builder):
    return Kept(clock=lambda: builder.now)


def test_an_answer_is_kept_until_something_is_written_or_it_is_old(builder, answers):
    assert [builder.ask(answers) for _ in range(3)] == ["e1"] * 3
    builder.commits += 1
    assert builder.ask(answers) == "e2"
    builder.now += kept.OLD_S
    assert builder.ask(answers) == "e3"


def test_what_is_written_during_a_look_makes_the_answer_old_at_once(builder, answers):
    def while_written():
        builder.commits += 1
        return builder()

    answers.get("a", lambda: builder.commits, while_written)
    assert builder.ask(answers) == "e2"


def test_many_who_ask_at_once_share_one_look(builder, answers):
    builder.slow = threading.Event()
    threads = [threading.Thread(target=builder.ask, args=(answers,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    builder.slow.set()
    for thread in threads:
        thread.join()
    assert builder.built == 1


def test_while_an_old_answer_is_made_anew_others_are_not_kept_waiting(builder, answers):
    builder.ask(answers)
    builder.now += kept.OLD_S
    builder.slow = threading.Event()
    anew = threading.Thread(target=builder.ask, args=(answers,))
    anew.start()
    while builder.built < 2:
        time.sleep(0.001)
    assert builder.ask(answers) == "e1"
    builder.slow.set()
    anew.join()
    assert builder.ask(answers) == "e2"


def test_a_look_that_fails_is_tried_again(builder, answers):
    def broken():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        answers.get("a", lambda: 0, broken)
    assert builder.ask(answers) == "e1"


def test_made_up_keys_do_not_fill_the_memory(builder, answers):
    for number in range(10 * kept.MOST):
        builder.ask(answers, number)
    assert len(answers._places) == kept.MOST


def test_everything_that_is_put_or_retired_is_in_the_next_state(world, build):
    seen = [states.current(world, TEAM)]
    made = resources.put(world, resources.Put(Address("experiment", "exp"), build.experiment(), None))
    seen.append(states.current(world, TEAM))
    resources.retire(world, Address("experiment", "exp"), TEAM, made.etag)
    seen.append(states.current(world, TEAM))
    empty, full, empty_again = (answer.etag for answer in seen)
    assert empty != full != empty_again
    assert states.current(world, TEAM) is seen[-1]
    assert states.build(world, TEAM, {}).etag == seen[-1].etag, "an answer is the same whenever it is built"


def test_a_failed_write_is_no_reason_to_trust_what_is_kept(world):
    before = world.store.commits

    def half():
        with world.store.write() as session:
            session.add(MetaRow(key="half", value="done"))
            session.flush()
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        half()
    assert world.store.commits > before


def test_a_writer_that_changes_nothing_makes_nothing_old(world):
    before = world.store.commits
    with world.store.write() as session:
        session.get(MetaRow, "lineage")
    assert world.store.commits == before


@pytest.mark.parametrize(
    "how", [delete(MetaRow), update(MetaRow).values(value="x"), text("delete from meta")]
)
def test_every_way_of_writing_is_noticed(world, how):
    before = world.store.commits
    with world.store.write() as session:
        session.execute(how)
    assert world.store.commits > before


def test_a_client_that_has_it_gets_304_until_something_changes(shared_server, build):
    ask = {"params": {"stack": "team"}}
    first = shared_server.http.get("/api/v1/state", **ask)
    again = httpx.Headers({"If-None-Match": first.headers["etag"]})
    shared_server.apply("cached", build.experiment("cached", seed="cached"))
    changed = shared_server.http.get("/api/v1/state", headers=again, **ask)
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]
