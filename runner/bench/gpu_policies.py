"""Policies where there is a GPU: small networks are trained on the CPU there too, to the same bits as without one.

`python runner/bench/gpu_policies.py FOLDER` trains tiny populations of DQN and PPO there and prints the digest of what
they have become; `gpu_check` compares that with a process that sees no GPU.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[2] / "tests" / "support"
TINY = {"max_steps": 160, "evo_steps": 80, "pop_size": 2, "eval_episodes": 1, "test_episodes": 0}


def digest(folder: Path) -> str:
    """Train, and hash the last states."""
    sys.path.insert(0, str(SUPPORT))
    from playground import job_of, play

    from arena_runner import checkpoint

    found = hashlib.sha256()
    for algorithm in ("DQN", "PPO"):
        played = play(job_of(algorithm, training=TINY), folder / algorithm)
        if played.finished.state != "completed":
            raise RuntimeError(played.finished.message)
        (started,) = played.of("started")
        if started.device != "cpu":
            raise RuntimeError(f"trained on {started.device}")
        state = checkpoint.state_folders(folder / algorithm / "states")[-1]
        for path in sorted(state.iterdir()):
            found.update(path.read_bytes())
    return found.hexdigest()


def elsewhere(*, gpu: bool) -> str:
    """The digest of a process of its own, which sees the GPUs or none."""
    seen = {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, folder],
            env=os.environ | seen,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    return done.stdout.split()[-1]


if __name__ == "__main__":
    print(digest(Path(sys.argv[1])))
