"""Comments and pull requests, read and written over a loopback API with GitHub's limits."""

from __future__ import annotations

import pytest
from github_api import FORK_TOKEN, JOB_TOKEN, PERSON_TOKEN, REPOSITORY, github_api

from arena_gitops.errors import AuthError, PlatformError, PlatformRejectedError
from arena_gitops.platforms.github import Clock, GitHub

__all__ = ["github_api"]


class Waits:
    def __init__(self):
        self.slept = []

    def clock(self):
        return Clock(now=lambda: 1_000.0, sleep=self.slept.append)


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
def connect(github_api, waits):
    opened = []

    def make(token=JOB_TOKEN, **options):
        opened.append(GitHub(github_api.url, token, REPOSITORY, clock=waits.clock(), **options))
        return opened[-1]

    yield make
    for github in opened:
        github.close()


def test_a_jobs_token_is_known_by_its_name_and_a_persons_is_asked(connect):
    assert connect().login() == "github-actions[bot]"
    assert connect(PERSON_TOKEN).login() == "ada"


def test_comments_of_every_page_are_read(github_api, connect):
    for n in range(65):
        github_api.say(7, "ada", f"comment {n}")
    assert [c.body for c in connect().comments(7)] == [f"comment {n}" for n in range(65)]
    assert len(github_api.asked) == 3


def test_a_comment_is_written_and_then_edited(github_api, connect):
    github = connect()
    github.post(7, "one")
    (comment,) = github.comments(7)
    github.edit(comment.id, "two")
    assert github_api.bodies(7) == ["two"]


def test_a_token_of_a_fork_is_told_what_it_lacks(connect):
    with pytest.raises(AuthError, match="pull-requests: write"):
        connect(FORK_TOKEN).post(7, "x")


def test_a_comment_that_is_too_long_is_refused_in_githubs_words(connect):
    with pytest.raises(PlatformRejectedError, match="65536 characters"):
        connect().post(7, "x" * 65_537)


@pytest.mark.parametrize(
    ("refusal", "pause"),
    [
        ((403, {"message": "rate limit"}, {"Retry-After": "7"}), 7.0),
        ((429, {"message": "rate limit"}, {"Retry-After": "3"}), 3.0),
        ((403, {"message": "rate limit"}, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1020"}), 20.0),
        ((429, {"message": "rate limit"}, {}), 60.0),
    ],
)
def test_asking_too_often_is_waited_out(github_api, connect, waits, refusal, pause):
    github_api.refusals = [refusal]
    connect().post(7, "once")
    assert waits.slept == [pause]
    assert github_api.bodies(7) == ["once"]


def test_nobody_waits_for_an_hour(github_api, connect, waits):
    github_api.refusals = [(403, {"message": "rate limit"}, {"Retry-After": "3600"})]
    with pytest.raises(PlatformError, match="asks to wait 3600 s"):
        connect().post(7, "x")
    assert waits.slept == []


def test_a_limit_that_does_not_end_is_reported(github_api, connect):
    github_api.refusals = [(429, {"message": "slow down"}, {"Retry-After": "1"})] * 9
    with pytest.raises(PlatformRejectedError, match="slow down"):
        connect().post(7, "x")


def test_the_merged_pull_request_of_a_squashed_commit_is_found(github_api, connect):
    github_api.pull(7, "a" * 40, merged_as="d" * 40)
    github_api.pull(8, "d" * 40)
    assert connect().merged_pull("d" * 40).number == 7
    assert connect().merged_pull("e" * 40) is None


def test_a_branch_that_has_moved_on_is_not_the_one_that_was_planned(github_api, connect):
    github_api.pull(9, "a" * 40, of="stranger:topic")
    assert connect().open_pull("stranger", "topic", "a" * 40).number == 9
    assert connect().open_pull("stranger", "topic", "c" * 40) is None


def test_what_is_no_answer_of_github_is_one_clear_error(github_api, connect):
    github_api.refusals = [(200, {"hello": 1}, {})]
    with pytest.raises(PlatformError, match="something else than GitHub"):
        list(connect().comments(7))
