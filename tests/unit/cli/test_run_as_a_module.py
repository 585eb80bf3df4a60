"""`python -m arena_gitops.cli` in somebody's folder: what lies there stands in for no library."""

import os
import subprocess
import sys


def test_a_module_in_the_working_directory_is_not_imported_in_place_of_a_library(tmp_path):
    for name in ("click", "json", "typing_extensions", "httpx", "pydantic"):
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w').close()\n")
    done = subprocess.run(
        [sys.executable, "-m", "arena_gitops.cli", "projects", "list", "--help"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, list(tmp_path.glob("ran-*"))) == (0, []), done.stderr
