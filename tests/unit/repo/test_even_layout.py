"""`arena fmt` moves spaces, nothing else."""

import pytest

from arena_gitops.errors import RepoError
from arena_gitops.repo.layout import evenly, layouts

UNEVEN = """\
# who we are
kind:   Experiment
name: sums-grpo
manifest: ../manifests/grpo.yaml
set:
    training.max_steps: 1_000   # a thousand
    algorithm.lr: 1.50e-05
retry:
    on:
    - "preempted"
    - failed
"""
EVEN = """\
# who we are
kind: Experiment
name: sums-grpo
manifest: ../manifests/grpo.yaml
set:
  training.max_steps: 1_000     # a thousand
  algorithm.lr: 1.50e-05
retry:
  on:
    - "preempted"
    - failed
"""


def test_indentation_and_spacing_become_even_and_comments_keep_their_columns():
    assert evenly(UNEVEN) == EVEN


def test_what_is_even_stays_as_it_is():
    assert evenly(EVEN) == EVEN


def test_line_endings_stay():
    assert evenly(UNEVEN.replace("\n", "\r\n")) == EVEN.replace("\n", "\r\n")


def test_several_documents_keep_their_separators():
    text = "---\nname: a\n---\nname: b\n"
    assert evenly(text) == text


def test_a_long_line_is_not_wrapped():
    text = f"description: {'word ' * 100}end\n"
    assert evenly(text) == text


def test_manifests_are_not_touched(repo):
    repo.edit("manifests/grpo.yaml", "  name: GRPO", "    name: GRPO")
    repo.edit("manifests/grpo.yaml", "  batch_size", "    batch_size")
    repo.edit("manifests/grpo.yaml", "  lr", "    lr")
    assert [layout.path for layout in layouts(repo.root) if layout.differs] == []


def test_every_file_that_declares_something_is_looked_at(repo):
    repo.write("deployments/sums.yaml", "kind:  Deployment\nname: sums\nexperiment: sums-grpo\n")
    assert [layout.path for layout in layouts(repo.root) if layout.differs] == ["deployments/sums.yaml"]


def test_a_file_that_cannot_be_read_is_an_error(repo):
    repo.write("deployments/sums.yaml", "kind: Deployment\nname: [\n")
    with pytest.raises(RepoError, match=r"deployments/sums.yaml:3"):
        layouts(repo.root)
