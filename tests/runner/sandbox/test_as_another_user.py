"""The same battery once more without root: a user namespace then does the work of the other user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INNER = "ARENA_TEST_SANDBOX_INNER"

# A private view in which the interpreter and the checkout can be entered by anyone, then another user.
SCRIPT = r"""
set -e
mount -t tmpfs -o mode=755 tmpfs /mnt; hold=/mnt
for path in "$@"; do mkdir -p "$hold$path"; mount --bind "$path" "$hold$path"; done
for path in "$@"; do
    top=/$(echo "$path" | cut -d/ -f2)
    mountpoint -q "$top" && [ "$(stat -c %a "$top")" = 755 ] || mount -t tmpfs -o mode=755 tmpfs "$top"
done
for path in "$@"; do mkdir -p "$path"; mount --bind "$hold$path" "$path"; done
mkdir -m 700 /mnt/home && chown 12345:12345 /mnt/home
"""


@pytest.mark.skipif(os.getuid() != 0, reason="already runs without root")
@pytest.mark.skipif(INNER in os.environ, reason="this is the inner run")
@pytest.mark.skipif(
    not (shutil.which("setpriv") and shutil.which("unshare")), reason="needs setpriv and unshare"
)
def test_every_hostile_reward_is_contained_without_root_too(tmp_path: Path):
    root = HERE.parents[2]
    repository = root / "arena_gitops"
    visible = {str(root), sys.prefix, str(Path(sys.base_prefix).resolve())}
    assert repository.is_dir()
    inner = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(root)]
    command = (
        SCRIPT
        + "exec setpriv --reuid 12345 --regid 12345 --clear-groups -- env HOME=/mnt/home $INNER_COMMAND\n"
    )
    tests = f"{HERE}/test_hostile_rewards.py {HERE}/test_reward_pool.py --basetemp=/mnt/home/pytest"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", *sorted(visible)],
        env={
            **os.environ,
            "REQUIRE_ALL": "0",  # what only root can show was shown by the outer run
            INNER: "1",
            "INNER_COMMAND": f"{' '.join(inner)} {tests}",
            "TMPDIR": "/mnt/home",
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd="/",
    )
    if "Operation not permitted" in done.stderr and "passed" not in done.stdout:
        pytest.skip(f"the kernel does not allow a private view here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
