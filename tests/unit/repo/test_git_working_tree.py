"""What git knows: which files belong, which bytes count, where they come from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from arena_gitops.errors import RepoError
from arena_gitops.repo.files import FileProblemError, Files
from arena_gitops.repo.git import _failure, checkout, tree_at, without_credentials
from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.spec.resource import Address

DATASET = Address("dataset", "sums")


def dataset(repo):
    return repo.load().resources[DATASET]


def test_outside_a_git_repository_the_error_says_git_init(repo):
    subprocess.run(["rm", "-rf", str(repo.root / ".git")], check=True)
    assert repo.problems() == ["None not-a-git-repository"]
    assert "git init" in repo.messages()


def test_before_the_first_commit_everything_is_dirty(repo):
    state = repo.load()
    assert (state.provenance.commit, state.provenance.dirty) == (None, True)


def test_a_committed_tree_is_clean_and_names_its_commit(repo):
    commit = repo.commit()
    state = repo.load()
    assert (state.provenance.commit, state.provenance.dirty) == (commit, False)
    assert all(not resource.provenance.dirty for resource in state.resources.values())


def test_an_edit_makes_dirty_what_uses_the_file_and_nothing_else(repo):
    repo.commit()
    repo.edit("datasets/data/sums.csv", "2", "3")
    state = repo.load()
    dirty = [str(address) for address, resource in state.resources.items() if resource.provenance.dirty]
    assert dirty == ["dataset/sums", "experiment/sums-grpo"]
    assert state.provenance.dirty


def test_a_deleted_document_makes_the_tree_dirty(repo):
    repo.commit()
    repo.remove("deployments/sums.yaml")
    assert repo.load().provenance.dirty


def test_a_file_nobody_reads_leaves_the_tree_clean(repo):
    repo.commit()
    repo.write("notes.txt", "x")
    assert not repo.load().provenance.dirty


def test_an_ignored_document_is_not_read(repo):
    repo.write(".gitignore", "drafts/\n")
    repo.write("experiments/drafts/x.yaml", "a: [")
    assert len(repo.load().resources) == 5


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://user:token@example.org/a/b.git?key=1#x", "https://example.org/a/b.git"),
        ("https://example.org/a/b.git", "https://example.org/a/b.git"),
        ("ssh://git@example.org/a.git", "ssh://example.org/a.git"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
    ],
)
def test_credentials_never_leave_the_remote_address(url, expected):
    assert without_credentials(url) == expected


def test_the_remote_is_recorded(repo):
    repo.git("remote", "add", "origin", "https://user:token@example.org/a.git")
    assert repo.load().provenance.repo == "https://example.org/a.git"


@pytest.mark.parametrize("committed", [False, True])
def test_windows_line_endings_do_not_change_a_digest(repo, committed):
    before = dataset(repo).spec["digest"]
    repo.write(".gitattributes", "*.csv text\n")
    repo.write(
        "datasets/data/sums.csv", (repo.root / "datasets/data/sums.csv").read_bytes().replace(b"\n", b"\r\n")
    )
    if committed:
        repo.commit()
    resource = dataset(repo)
    assert resource.spec["digest"] == before
    (blob,) = resource.blobs
    assert sha256_bytes(blob.data) == before
    assert blob.size == len(blob.data)


def test_line_endings_that_git_keeps_are_kept(repo):
    content = b"question,answer\r\n1,2\r\n"
    repo.write("datasets/data/sums.csv", content)
    (blob,) = dataset(repo).blobs
    assert (blob.digest, blob.data) == (sha256_bytes(content), None)


def test_a_clean_filter_decides_the_bytes(repo):
    repo.git("config", "filter.upper.clean", "tr a-z A-Z")
    repo.write(".gitattributes", "rewards/near.py filter=upper\n")
    repo.write("rewards/near.py", "x = 1\n")
    (path,) = [path for path in checkout(repo.root).files if path.endswith("near.py")]
    assert Files(checkout(repo.root)).blob(path).data == b"X = 1\n"


def test_normalising_writes_nothing_into_the_repository(repo):
    repo.write(".gitattributes", "*.csv text\n")
    repo.write("datasets/data/sums.csv", b"question,answer\r\n1,2\r\n")
    before = sorted((repo.root / ".git").rglob("*"))
    repo.load()
    assert sorted((repo.root / ".git").rglob("*")) == before


def test_an_lfs_pointer_stands_for_its_content(repo):
    content = b"question,answer\n1,2\n"
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid {sha256_bytes(content)}\nsize {len(content)}\n"
    )
    repo.write(".gitattributes", "*.csv filter=lfs\n")
    repo.write("datasets/data/sums.csv", content)
    fetched = dataset(repo)
    repo.write("datasets/data/sums.csv", pointer)
    left_out = dataset(repo)
    assert left_out.spec["digest"] == fetched.spec["digest"] == sha256_bytes(content)
    assert (left_out.blobs[0].size, bool(left_out.blobs[0].absent)) == (len(content), True)
    assert [str(note.span) for note in repo.load().notes if note.code == "lfs-pointer"] == [
        "datasets/sums.yaml:4:7"
    ]


def test_code_behind_an_lfs_pointer_is_a_clear_error(repo):
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n"
    repo.write("rewards/exact.py", pointer)
    assert "rewards/exact.py:1:1 lfs-pointer" in repo.problems()
    assert "git lfs pull" in repo.messages()


def test_file_names_need_not_be_ascii(repo):
    repo.write("rewards/größe test.py", "def reward(q, a, c):\n    return 1.0\n")
    repo.write("rewards/size.yaml", 'kind: Reward\nname: size\nfile: "größe test.py"\n')
    assert Address("reward", "size") in repo.load().resources


def test_variables_of_an_outer_git_do_not_mislead(repo, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert len(repo.load().resources) == 5


def test_the_tree_of_a_commit_is_readable_without_checking_it_out(repo):
    repo.commit()
    repo.remove("deployments/sums.yaml")
    assert tree_at(repo.root, "HEAD")["deployments/sums.yaml"].startswith(b"kind: Deployment")


def test_a_sparse_checkout_never_looks_like_a_removal(repo):
    repo.commit()
    repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/experiments/", "!/rewards/")
    assert [problem for problem in repo.problems() if "not-checked-out" in problem] == [
        "experiments/project.yaml:1:1 not-checked-out",
        "experiments/sums-grpo.yaml:1:1 not-checked-out",
        "rewards/exact.py:1:1 not-checked-out",
    ]


def test_a_link_to_nothing_never_looks_like_a_removal(repo):
    repo.commit()
    repo.remove("experiments/sums-grpo.yaml")
    (repo.root / "experiments/sums-grpo.yaml").symlink_to("gone.yaml")

    assert "experiments/sums-grpo.yaml:1:1 broken-link" in repo.problems()


def test_a_file_name_that_is_no_text_is_left_alone(repo):
    (repo.root / "data").mkdir(exist_ok=True)
    Path(os.fsdecode(os.fsencode(repo.root) + b"/data/\xff.txt")).touch()
    repo.git("add", "--all")

    assert DATASET in repo.load().resources


def test_a_linked_file_has_the_bytes_it_links_to(repo):
    repo.write("lib/exact.py", (repo.root / "rewards/exact.py").read_bytes())
    before = repo.load().resources[Address("reward", "exact")].fingerprint
    repo.remove("rewards/exact.py")
    (repo.root / "rewards/exact.py").symlink_to("../lib/exact.py")
    assert repo.load().resources[Address("reward", "exact")].fingerprint == before


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("fatal: detected dubious ownership in repository at '/r'", "git-unsafe-directory"),
        ("fatal: not a git repository (or any of the parent directories): .git", "not-a-git-repository"),
        ("fatal: bad object", "git-failed"),
    ],
)
def test_what_git_refuses_is_translated(tmp_path, stderr, code):
    assert _failure(tmp_path, "status", stderr).code == code


def test_without_git_the_error_says_so(repo, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert repo.problems() == ["None no-git"]


def test_an_unknown_commit_is_a_clear_error(repo):
    repo.commit()
    with pytest.raises(RepoError, match="no commit 'nope'"):
        tree_at(repo.root, "nope")


def test_the_tree_of_a_commit_is_readable_below_a_folder(repo):
    repo.commit()
    assert list(tree_at(repo.root / "deployments", "HEAD")) == ["sums.yaml"]


@pytest.fixture
def submodule(repo):
    """A submodule among the experiments: as the index knows it, which is all there is in a plain checkout."""
    repo.commit()
    head = repo.git("rev-parse", "HEAD")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},experiments/sub")
    return repo.root / "experiments" / "sub"


def test_a_submodule_that_is_not_checked_out_must_not_look_as_if_it_were_empty(repo, submodule):
    assert repo.problems() == ["experiments/sub:1:1 submodule-missing"]
    assert "git submodule update --init" in repo.messages()


def test_the_files_of_a_submodule_are_not_read_and_a_remark_says_so(repo, submodule):
    submodule.mkdir()
    (submodule / "p.yaml").write_text("kind: Project\nname: other\n")
    desired = repo.load()
    assert len(desired.resources) == 5
    assert "in-submodule" in [note.code for note in desired.notes]
    repo.edit("experiments/sums-grpo.yaml", "../manifests/grpo.yaml", "sub/p.yaml")
    assert "lies in the submodule experiments/sub" in repo.messages()


@pytest.mark.parametrize("read", [Files.read, Files.blob])
def test_a_file_that_cannot_be_read_is_a_clear_error(repo, read):
    with pytest.raises(FileProblemError, match="gone cannot be read: No such file"):
        read(Files(checkout(repo.root)), "gone")
