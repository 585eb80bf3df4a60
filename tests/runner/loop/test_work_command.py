"""`arena-runner work`: where its token comes from, and what it says when it is not wanted."""

import os

import pytest
from click.testing import CliRunner

from arena_gitops.errors import UsageError
from arena_runner import work
from arena_runner.server_link import RefusedError

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the command would work with; nothing is asked of any server."""
    monkeypatch.delenv(work.TOKEN, raising=False)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    seen = []

    def noted(link, post, leaving, shift):
        seen.append((link._client.headers["authorization"], post, leaving.grace_s, shift))

    monkeypatch.setattr(work, "work_pool", noted)

    def call(*options):
        answer = CliRunner().invoke(work.command, ["--server", NOBODY, "--tier", "gpu", *options])
        if answer.exception:
            raise answer.exception
        return seen[-1]

    return call


def test_the_token_comes_from_the_environment_and_does_not_stay_there(asked, monkeypatch):
    monkeypatch.setenv(work.TOKEN, "from the environment")
    assert asked()[0] == "Bearer from the environment"
    assert work.TOKEN not in os.environ


def test_the_token_comes_from_a_file(asked, tmp_path):
    (tmp_path / "token").write_text("from a file\n")
    assert asked("--token-file", str(tmp_path / "token"))[0] == "Bearer from a file"


def test_a_worker_without_a_token_says_how_to_give_it_one(asked):
    with pytest.raises(UsageError, match="set ARENA_WORKER_TOKEN, or name a file with --token-file"):
        asked()


def test_folders_have_defaults_in_the_home(asked, tmp_path):
    _, post, grace_s, shift = asked("--token", "t", "--max-jobs", "2")
    assert post.workdir == tmp_path / "worker"
    assert post.models_cache == tmp_path / "worker" / "models"
    assert (post.tier, grace_s, shift.once, shift.max_jobs) == ("gpu", 20.0, False, 2)


def test_a_refusal_is_a_usage_error_in_the_servers_words(asked, monkeypatch):
    def refused(*_):
        raise RefusedError("POST /api/v1/workers/register: 426 install arena-runner==9 there")

    monkeypatch.setattr(work, "work_pool", refused)
    with pytest.raises(UsageError, match=r"the server refused this worker: .* install arena-runner==9 there"):
        asked("--token", "t")
