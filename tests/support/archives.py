"""Archives as the published client makes them: every file of a folder, by its relative name."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping

MERGE = """
import gymnasium as gym
import numpy as np


class MergeEnv(gym.Env):
    def __init__(self, size=4):
        self.observation_space = gym.spaces.Box(0, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self.look(), {}

    def step(self, action):
        self.left -= 1
        return self.look(), float(action), self.left == 0, False, {}

    def look(self):
        return self.np_random.random(self.observation_space.shape).astype(np.float32)
"""
"""A Gymnasium environment that is right in everything."""


def tar_gz(files: Mapping[str, bytes | str], more: Iterable[tarfile.TarInfo] = ()) -> bytes:
    """A compressed archive with these files, and entries of other kinds."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for entry in more:
            tar.addfile(entry)
    return out.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    """An entry that points elsewhere."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry
