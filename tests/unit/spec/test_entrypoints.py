"""Environments are found by reading their source."""

from __future__ import annotations

import pytest

from arena_gitops.spec.entrypoints import entrypoints


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import gymnasium as gym\nclass A(gym.Env): ...", ["env:A"]),
        ("from gymnasium import Env\nclass A(Env[int, int]): ...", ["env:A"]),
        ("from pettingzoo import ParallelEnv\nclass A(ParallelEnv): ...", ["env:A"]),
        ("class A:\n    def reset(self): ...\n    def step(self, a): ...", ["env:A"]),
        ("class A:\n    def reset(self): ...", []),
        ("class Base(Env): ...\nclass A(Base): ...\nclass B(Base): ...", ["env:A", "env:B"]),
        ("class W(gym.ObservationWrapper):\n    def reset(self): ...\n    def step(self, a): ...", []),
        ("class A(B): ...\nclass B(A): ...", []),
        ("def f(:", []),
    ],
)
def test_classes_of_one_file(source, found):
    assert entrypoints({"env.py": source}) == found


def test_a_class_may_derive_from_one_of_another_file_and_module_names_follow_the_folder():
    sources = {
        "pkg/__init__.py": "class Root(Env): ...",
        "pkg/envs/merge.py": "from pkg import Root\nclass Merge(Root): ...",
    }

    assert entrypoints(sources) == ["pkg.envs.merge:Merge"]
