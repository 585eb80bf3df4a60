"""Beside the published client, which also installs an `arena`: that name is whoever's came last, `arena-gitops` is ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from arena_gitops import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = "agilerl-arena==1.29.0"
OURS, THEIRS = "arena_gitops.cli.main", "agilerl.arena"


def pip(*args: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Both distributions: ours as it would be published, built once from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    shutil.copytree(
        ROOT / "arena_gitops", source / "arena_gitops", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--wheel-dir", folder / "ours", source)
    pip("download", "--no-deps", "--dest", folder / "theirs", PUBLISHED)
    return {OURS: next((folder / "ours").iterdir()), THEIRS: next((folder / "theirs").iterdir())}


class Environment:
    """A virtual environment; what the two packages need is lent by the one the tests run in."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.bin = folder / "bin"
        self.packages = next((folder / "lib").glob("python*")) / "site-packages"
        self.home = folder / "home"
        self.home.mkdir()

    def install(self, wheel: Path) -> None:
        pip("--python", self.bin / "python", "install", "--no-deps", "--no-index", wheel)

    def uninstall(self, name: str) -> None:
        pip("--python", self.bin / "python", "uninstall", "--yes", name)

    def lend(self) -> None:
        paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (self.packages / "lent.pth").write_text("\n".join(sorted(paths)) + "\n")

    def take_back(self) -> None:
        (self.packages / "lent.pth").unlink()

    def whose(self, name: str) -> str:
        """The package that a script starts."""
        text = (self.bin / name).read_text()
        return OURS if OURS in text else THEIRS if THEIRS in text else text

    def run(self, *args: str) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "PYTHON"))}
        environment = {**kept, "HOME": str(self.home)}
        done = subprocess.run(
            [self.bin / args[0], *args[1:]],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=self.home,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours first", "ours last"])
def test_arena_is_who_came_last_and_arena_gitops_always_ours(wheels, tmp_path, order):
    environment = Environment(tmp_path / "env")
    for which in order:
        environment.install(wheels[which])
    environment.lend()

    assert environment.whose("arena") == order[-1]
    assert environment.whose("arena-gitops") == OURS
    assert environment.run("arena-gitops", "--version") == f"arena {__version__} (arena-gitops)\n"
    (environment.home / "m.yaml").write_text((ROOT / "tests/unit/spec/manifests/rows.yaml").read_text())
    assert "valid: m.yaml trains" in environment.run("arena-gitops", "manifest", "validate", "m.yaml")
    where = "import arena_gitops; print(arena_gitops.__file__)"
    assert environment.run("python", "-c", where).startswith(str(environment.packages))

    environment.take_back()
    environment.uninstall("agilerl-arena")
    environment.lend()
    assert environment.run("arena-gitops", "completion", "bash", "--name", "arena-gitops")


def test_the_action_of_the_example_installs_from_a_folder_of_wheels(wheels, tmp_path):
    """Its own `run:` block; what the command needs beside itself is lent, so that no index is asked."""
    environment = Environment(tmp_path / "env")
    for name in ("pip", "click"):
        (environment.packages / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    action = YAML(typ="safe").load(ROOT / "examples/infra-repo/.github/actions/arena/action.yml")
    (step,) = action["runs"]["steps"]
    inputs = {"version": action["inputs"]["version"]["default"], "find-links": str(wheels[OURS].parent)}
    named = {key: inputs[value.split(".")[1].removesuffix(" }}")] for key, value in step["env"].items()}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "PYTHON"))}
    path = f"{environment.bin}:{os.environ['PATH']}"
    alone = {"PATH": path, "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "HOME": str(environment.home)}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={**kept, **named, **alone},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"arena {__version__} (arena-gitops)\n"
    assert (environment.packages / "arena_gitops" / "cli" / "starter" / "github" / "workflows").is_dir()
