"""Checkouts that are not what a plan needs: exit code 65 and what to do, never `No changes`."""

from __future__ import annotations

import subprocess

import pytest
from ci_job import Repo, planned, repo
from github_api import FORK_TOKEN, github_api

from arena_gitops.report.marker import Marker

__all__ = ["github_api", "repo"]

pytestmark = pytest.mark.slow

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 9\n".format("0" * 64)


def forked(repo, number=7):
    """A plan that needs no server: of a fork."""
    event = repo.pull_event(number, source="stranger/infra")
    return repo.job("arena-plan.yml", "pull_request", event, token=FORK_TOKEN)


def cloned(repo, *options):
    """What `actions/checkout` with these options would leave."""
    place = repo.root.with_name("other")
    url = f"file://{repo.root}"
    subprocess.run(["git", "clone", "--quiet", *options, url, place], check=True, capture_output=True)
    return Repo(place, repo.api, repo.scratch, base=repo.base)


def test_a_shallow_clone_is_named_with_its_remedy(repo, github_api):
    repo.commit("A change")
    done = forked(cloned(repo, "--depth", "1"))
    assert done.code == 65
    assert "this clone is shallow" in done.out
    assert "fetch-depth: 0" in done.summary
    assert "No changes" not in done.out


def test_a_detached_head_at_the_merge_of_a_pull_request_is_normal(repo, github_api):
    repo.git("checkout", "--quiet", "-b", "topic")
    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.7e-4")
    repo.commit("A change")
    repo.git("checkout", "--quiet", "main")
    repo.commit("Something else")
    repo.git("merge", "--quiet", "--no-ff", "-m", "Merge", "topic")
    repo.git("update-ref", "refs/pull/7/merge", "HEAD")
    repo.git("checkout", "--quiet", "--detach", "refs/pull/7/merge")
    done = forked(repo)
    assert done.code == 0, done.out
    assert "new version" in done.summary


def test_a_submodule_that_is_not_there_is_named_with_its_remedy(repo, github_api):
    head = repo.git("rev-parse", "HEAD")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},experiments/more")
    repo.git("commit", "--quiet", "-m", "More experiments")
    done = forked(repo)
    assert done.code == 65
    assert "::error file=experiments/more" in done.out
    assert "submodules: true" in done.summary


def test_code_that_is_an_lfs_pointer_is_named_with_its_remedy(repo, github_api):
    (repo.root / "rewards" / "word_problems.py").write_text(POINTER)
    repo.commit("Into LFS, and not fetched")
    done = forked(repo)
    assert done.code == 65
    assert "git lfs pull" in done.summary


def test_a_sparse_checkout_is_named_with_its_remedy(repo, github_api):
    repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/experiments/")
    done = forked(repo)
    assert done.code == 65
    assert "git sparse-checkout disable" in done.summary


def test_no_plan_takes_the_place_of_the_one_before(repo, github_api):
    """A broken checkout must not leave an old plan standing that somebody might approve."""
    shallow = cloned(repo, "--depth", "1")
    shallow.base = "b" * 40
    assert planned(shallow, 7).code == 65
    (body,) = github_api.bodies(7)
    assert Marker.find(body).plan_id is None
