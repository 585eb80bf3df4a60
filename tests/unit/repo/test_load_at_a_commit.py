"""A repository as another commit had it, without touching the working tree."""

import pytest

from arena_gitops.errors import RepoError
from arena_gitops.repo.load import limits_at, load, load_at
from arena_gitops.spec.resource import Address

EXPERIMENT = Address("experiment", "sums-grpo")


def test_the_same_commit_gives_the_same_fingerprints(repo):
    repo.commit()
    now, then = repo.load(), load_at(repo.root, "HEAD")
    assert {a: r.fingerprint for a, r in then.resources.items()} == {
        a: r.fingerprint for a, r in now.resources.items()
    }
    assert {a: r.spec for a, r in then.resources.items()} == {a: r.spec for a, r in now.resources.items()}


def test_line_endings_and_links_of_the_working_tree_do_not_count(repo):
    repo.write(".gitattributes", "*.csv text eol=crlf\n")
    (repo.root / "datasets/data/again.csv").symlink_to("sums.csv")
    repo.edit("datasets/sums.yaml", "data/sums.csv", "data/again.csv")
    repo.commit()
    repo.write("datasets/data/sums.csv", b"question,answer\r\n1+1?,#### 2\r\n")
    before, now = load_at(repo.root, "HEAD").resources, repo.load().resources
    assert before[Address("dataset", "sums")].fingerprint == now[Address("dataset", "sums")].fingerprint


def test_an_earlier_commit_gives_what_was_written_then(repo):
    repo.commit()
    repo.edit("manifests/grpo.yaml", "lr: 1e-5", "lr: 2e-5")
    repo.commit()
    lr = [
        load_at(repo.root, ref).resources[EXPERIMENT].spec["manifest"]["algorithm"]["lr"]
        for ref in ("HEAD~1", "HEAD")
    ]
    assert lr == [1e-5, 2e-5]


def test_nothing_is_checked_out_and_no_hook_runs(repo):
    repo.commit()
    hook = repo.root / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hook-ran\n")
    hook.chmod(0o755)
    repo.edit("manifests/grpo.yaml", "lr: 1e-5", "lr: 2e-5")
    before = repo.git("status", "--porcelain")
    load_at(repo.root, "HEAD")
    assert repo.git("status", "--porcelain") == before
    assert not (repo.root / "hook-ran").exists()


def test_a_commit_before_the_first_stack_is_nothing(repo):
    repo.remove("arena.yaml")
    repo.commit()
    assert load_at(repo.root, "HEAD") is None


def test_a_commit_that_is_not_there_says_what_to_do_in_ci(repo):
    repo.commit()
    with pytest.raises(RepoError, match="fetch-depth: 0"):
        load_at(repo.root, "origin/main")


def test_problems_of_the_other_commit_are_named_as_such(repo):
    repo.edit("experiments/sums-grpo.yaml", "reward: exact", "reward: exactly")
    repo.commit()
    with pytest.raises(RepoError, match="at HEAD: "):
        load_at(repo.root, "HEAD")


def test_the_limits_of_a_commit_are_those_of_its_own_arena_yaml(repo):
    repo.commit()
    repo.edit(
        "arena.yaml", "project: maths", "project: maths\npreview: {max_steps: 7}\npolicy: {max_nodes: 2}"
    )
    assert limits_at(repo.root, "HEAD").preview_steps == 200
    repo.commit()
    limits = limits_at(repo.root, "HEAD")
    assert (limits.preview_steps, limits.policy.max_nodes) == (7, 2)
    repo.edit("arena.yaml", "{max_steps: 7}", "{max_steps: 70}")
    repo.edit("arena.yaml", "max_nodes: 2", "max_nodes: 20")
    desired = load(repo.root, namespace="pr-1", limits=limits)
    assert desired.policy.max_nodes == 2
    assert steps(desired) == 7
    assert steps(load(repo.root, namespace="pr-1")) == 70
    assert steps(load(repo.root)) == 1000


@pytest.mark.parametrize("namespace", ["main", "staging", "pr-7b", "pr-0", "my-pr-7", "pr-x", "pr-7-2"])
def test_only_the_namespace_of_a_pull_request_is_cut_short(repo, namespace):
    assert steps(load(repo.root, namespace="pr-7")) == 200
    desired = load(repo.root, namespace=namespace)
    assert steps(desired) == 1000
    assert "preview-cut-short" not in [note.code for note in desired.notes]


def test_a_preview_of_passes_over_the_rows_counts_steps(repo):
    repo.edit("manifests/grpo.yaml", "max_steps: 1_000", "num_epochs: 3\n  evo_steps: 500")
    training = experiment(load(repo.root, namespace="pr-1"))["training"]
    assert (training["max_steps"], training["evo_steps"], training["num_epochs"]) == (200, 200, None)
    assert experiment(load(repo.root))["training"]["num_epochs"] == 3


def test_a_preview_that_asks_for_no_more_is_as_written_and_its_run_is_that_of_main(repo):
    main, preview = load(repo.root), load(repo.root, namespace="pr-1")
    (address,) = [a for a in main.resources if a.kind == "experiment"]
    assert main.resources[address].fingerprint == preview.resources[address].fingerprint
    assert "preview-cut-short" in [note.code for note in preview.notes]
    (note,) = [note for note in preview.notes if note.code == "preview-cut-short"]
    assert str(note.span) == "manifests/grpo.yaml:8:14"
    repo.edit("manifests/grpo.yaml", "1_000", "200")
    assert "preview-cut-short" not in [note.code for note in load(repo.root, namespace="pr-1").notes]


def test_limits_of_no_stack_are_none_and_those_of_a_broken_one_an_error(repo):
    repo.commit()
    repo.edit("arena.yaml", "name: team", "name: 7 teams")
    repo.commit()
    with pytest.raises(RepoError, match="at HEAD: "):
        limits_at(repo.root, "HEAD")
    repo.remove("arena.yaml")
    repo.commit()
    assert limits_at(repo.root, "HEAD") is None
    with pytest.raises(RepoError, match="fetch-depth: 0"):
        limits_at(repo.root, "b" * 40)


def experiment(desired):
    return next(r.spec["manifest"] for a, r in desired.resources.items() if a.kind == "experiment")


def steps(desired):
    return experiment(desired)["training"]["max_steps"]
