"""Every block of commands in the documents is run, page by page, against one server whose worker is scripted.

What cannot be run here says why in the document (`<!-- not run: … -->`); what is named within a line has to exist.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from documented import EXAMPLES, PAGES, ROOT, blocks, hidden, mentioned, name_of
from real_server import real_server

from arena_gitops.cli.main import arena as light
from arena_runner.cli import main as heavy

pytestmark = pytest.mark.slow  # many starts of programs, on whatever machine

RUN = [page for page in PAGES if any(not block.reason for block in blocks(page))]
TIERS = """\
tiers:
  - {id: local, num_cpus: 2, ram_gb: 8, credits_per_node_hour: 0}
  - {id: gpu, executor: pull, gpu_type: H100, num_gpus: 1, num_cpus: 16, ram_gb: 128, credits_per_node_hour: 3.0}
"""
GIVEN = {"accounts.md": {"key.txt": "a key\n", "token.txt": None}}
"""Files that a page takes for granted; None: with the server's token."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("documented") / "home"
    home.mkdir()
    (home / "tiers.yaml").write_text(TIERS)
    with real_server(home) as found:
        yield found


@pytest.fixture
def place(server, tmp_path, monkeypatch):
    """An empty folder of somebody who has just begun, on the machine of the server."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("arena", "arena-gitops"), ("arena-runner", "arena-runner"), ("python", "python")):
        (programs / name).symlink_to(Path(sys.executable).parent / script)
    folder = tmp_path / "work"
    folder.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARENA_") and key != "CI"}
    env = kept | {
        "ARENA_HOME": str(server.home),
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path),
        "SERVER": server.url,
    }
    return folder, env


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_commands_of_a_page_can_be_typed_in_their_order(page, place, server):
    folder, env = place
    if page in EXAMPLES:  # whoever reads it stands in a repository of their own like this one
        shutil.copytree(page.parent, folder, dirs_exist_ok=True)
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    for name, text in GIVEN.get(page.name, {}).items():
        (folder / name).write_text(server.token if text is None else text)
    script = "set -eux -o pipefail\n" + "".join(block.body for block in blocks(page) if not block.reason)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_what_is_not_run_says_why():
    reasons = [block.reason for page in PAGES for block in blocks(page) if block.reason]
    assert all(len(reason.split()) >= 4 for reason in reasons), reasons
    assert len(reasons) <= 16, "most commands of the documents are run"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_command_stands_where_nothing_runs_it(page):
    assert list(hidden(page)) == []


def test_every_target_of_make_that_is_named_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_is_named_exists_with_its_options(page):
    wrong = [f"{command}: {why}" for command in mentioned(page) if (why := problem(command))]
    assert wrong == []


def problem(line: str) -> str:
    """Why a command line cannot be typed so; empty for one that can. `a|b` are alternatives."""
    program, *words = line.replace("[", " ").replace("]", " ").split()
    command: click.Command = heavy if program == "arena-runner" else light
    context = click.Context(command, info_name=program, **command.context_settings)
    takes: dict[str, bool] = {}
    rest = iter(words)
    for word in rest:
        takes |= {
            option: not getattr(p, "is_flag", False) for p in command.get_params(context) for option in p.opts
        }
        option, equals, _ = word.partition("=")
        if option.startswith("-"):
            if option.rstrip(",.") not in takes:
                return f"no option {option}"
            if takes[option.rstrip(",.")] and not equals:
                next(rest, None)
        elif isinstance(command, click.Group) and word[0].isalpha():
            found = [command.get_command(context, name) for name in word.split("|")]
            if None in found:
                return f"no command {word}"
            command, context = found[0], click.Context(found[0], info_name=word, parent=context)
    return ""
