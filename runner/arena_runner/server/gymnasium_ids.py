"""The environments that Gymnasium itself registers, asked once in a process of its own: the server stays small."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

ASK = "import json, gymnasium; print(json.dumps(sorted(gymnasium.registry)))"
PATIENCE_S = 60.0


@functools.cache
def registered() -> tuple[str, ...]:
    """Every id without a namespace; none where Gymnasium is not installed."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode:
        return ()
    return tuple(name for name in json.loads(done.stdout.splitlines()[-1]) if "/" not in name)
