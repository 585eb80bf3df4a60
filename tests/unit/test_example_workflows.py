"""The example workflows are what GitHub accepts, pinned, and without a known weakness."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

GITHUB = Path(__file__).resolve().parents[2] / "examples" / "infra-repo" / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONS = sorted((GITHUB / "actions").glob("*/action.yml"))


def bin_of(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def check(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_workflows_and_an_action():
    assert {path.stem for path in WORKFLOWS} >= {"arena-plan", "arena-apply", "arena-comment"}
    assert ACTIONS


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("github-actions", ACTIONS)],
    ids=["workflows", "actions"],
)
def test_they_fit_githubs_schema(schema, files):
    check(bin_of("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *map(str, files))


def test_zizmor_finds_nothing():
    check(bin_of("zizmor"), "--offline", "--no-progress", str(GITHUB))


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.stem)
def test_every_foreign_action_is_pinned_to_a_commit_with_its_version_beside_it(path):
    used = re.findall(r"uses: *(\S+)(.*)", path.read_text())
    foreign = [(name, rest) for name, rest in used if not name.startswith("./")]
    assert [
        (name, rest)
        for name, rest in foreign
        if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", name) or not re.match(r" # v\d+\.\d+\.\d+", rest)
    ] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_has_a_time_limit_and_only_the_permissions_it_names(path):
    document = YAML(typ="safe").load(path)
    assert document["permissions"] == {}
    for job in document["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert set(job["permissions"].values()) <= {"read", "write"}
        assert "write" not in {job["permissions"].get(scope) for scope in ("contents", "actions")}
