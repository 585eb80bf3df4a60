"""How many tokens one forward and backward may hold on a machine that others use too.

Micro-batches change no number of an update but its last bits (training.md §3.4), so they may follow the memory that is
free when a run starts. They are chosen once: a resumed run keeps what was stored.
"""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from arena_gitops.spec.manifest import Manifest
from arena_gitops.spec.memory import GIB, LEAST_TOKENS_PER_BACKWARD, TOLERANCE
from arena_runner.expected import needed
from arena_runner.learner import Learner

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def that_fit(learner: Learner, manifest: Manifest, free: int) -> int:
    """The learner's tokens per backward, halved until an update fits into `free` bytes.

    Base and adapters are loaded already. What is asked for is the closed form of `spec.memory` with its tolerance, at
    the longest prompts the manifest allows; a base it does not cover keeps what it has, and nothing goes below
    `LEAST_TOKENS_PER_BACKWARD`: less would not save what is short.
    """
    tokens = learner.tokens_per_backward
    least = min(tokens, LEAST_TOKENS_PER_BACKWARD.get(learner.base.device.type, tokens))
    while tokens > least and (found := needed(learner, manifest, tokens)):
        if (found.adapters + found.training) * (1 + TOLERANCE) <= free:
            break
        tokens = max(tokens // 2, least)
    return tokens


def free_bytes(device: torch.device) -> int:
    """Memory a process can still have: of the device, or of the machine within the limit of its container."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min([int(psutil.virtual_memory().available), *_left_in_containers()])


def said(free: int, wanted: int, tokens: int) -> str:
    """The line of a run that makes do with less."""
    return (
        f"{free / GIB:.2f} GiB of memory are free: updates in micro-batches of {tokens} tokens instead of {wanted}, "
        "the same result in more time"
    )


def _left_in_containers() -> list[int]:
    """What a limit of the container leaves, where there is one."""
    return [
        max(int(Path(limit).read_text()) - int(Path(used).read_text()), 0)
        for limit, used in _CGROUPS
        if Path(limit).is_file() and Path(used).is_file() and Path(limit).read_text().strip().isdigit()
    ]
