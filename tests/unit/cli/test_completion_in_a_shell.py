"""The completion script in a shell, as a person has it after the line in ~/.bashrc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arena_gitops.cli.main import run

BIN = Path(sys.executable).parent
ASK = """
eval "$(arena-gitops completion bash --name arena-gitops)"
ask() {
  COMPREPLY=(); COMP_WORDS=(arena-gitops "$@"); COMP_CWORD=$#
  _arena_gitops_completion arena-gitops "${@: -1}" "${COMP_WORDS[-2]}"
  echo "${COMPREPLY[@]}"
}
complete -p arena-gitops
ask exper
ask experiments lo
ask experiments logs --fo
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_bash_completes_groups_commands_and_options():
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", ASK], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    registered, *completed = done.stdout.splitlines()
    assert registered.endswith("-F _arena_gitops_completion arena-gitops")
    assert completed == ["experiments", "logs", "--follow"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("name", ["arena", "arena-gitops"])
def test_the_script_of_a_shell_is_for_the_name_that_was_given(capsys, shell, name):
    assert run(["completion", shell, "--name", name]) == 0
    script = capsys.readouterr().out
    assert f"_{name.replace('-', '_').upper()}_COMPLETE={shell}_complete" in script
    assert f" {name}" in script
