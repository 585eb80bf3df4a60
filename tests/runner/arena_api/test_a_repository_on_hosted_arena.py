"""The tutorial as a repository, planned and applied over the protocol of hosted Arena, on a server that trains.

The server's own API is switched off on the way, and the one submission is answered 503 after it took effect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from between import between
from repos import commit, put

ARENA = Path(sys.executable).parent / "arena-gitops"
SUBMIT = "/api/cli/v1/experiments/jobs/submit"
FILES = {
    "datasets/gsm8k.yaml": "kind: Dataset\nname: gsm8k\ncategory: reasoning\n"
    "hf: {id: openai/gsm8k, config: main, split: train}\n"
    "column_mapping: {question: question, answer: answer}\n",
    "experiments/project.yaml": "kind: Project\nname: gsm8k\ndescription: GSM8K tutorial\nllm_based: true\n",
    "experiments/gsm8k-grpo.yaml": "kind: Experiment\nname: gsm8k-grpo\nmanifest: ../manifests/gsm8k_grpo.yaml\n"
    "dataset: gsm8k\nreward: gsm8k\ntier: arena-medium\nnum_nodes: 2\n"
    "set: {algorithm.max_output_tokens: 8}\n",
    "deployments/gsm8k.yaml": "kind: Deployment\nname: gsm8k\nexperiment: gsm8k-grpo\ncheckpoint: best\n",
}


@pytest.fixture(scope="module")
def hosted(site):
    """The site with nothing but the published protocol."""
    with between(site.url) as proxy:
        proxy.before = lambda _method, path: (404, b"") if path.startswith("/api/v1") else None
        yield proxy


@pytest.fixture
def arena(hosted, site, tutorial, tmp_path):
    """`arena …` in the repository, with the platform pinned as in CI."""
    stack = "name: gsm8k-team\nproject: gsm8k\ntargets:\n"
    target = f'  hosted: {{platform: arena_cloud, url: "{hosted.url}"}}\n'
    code = {"manifests/gsm8k_grpo.yaml": tutorial.manifest, "rewards/gsm8k.py": tutorial.reward}
    root = commit(put(tmp_path / "repository", {"arena.yaml": stack + target, **FILES, **code}))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "GITHUB_")) and k != "CI"}
    own = {"HOME": str(tmp_path), "ARENA_BASE_URL": hosted.url, "ARENA_API_KEY": site.token}

    def call(*args, code=0):
        done = subprocess.run(
            [ARENA, *args], cwd=root, env=kept | own, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    return call


def test_planned_applied_trained_deployed_and_nothing_twice(arena, hosted, site):
    first = arena("plan")
    assert "3 to create" in first
    assert "deployed by the first apply after that" in first

    hosted.after = lambda _method, path, _status: (503, b"lost") if path == SUBMIT else None
    arena("apply", "--yes")
    hosted.after = lambda _method, _path, _status: None
    arena("apply", "--yes")
    assert [path for _, path in hosted.seen].count(SUBMIT) == 1
    (row,) = site.get("/api/cli/v1/experiments/list")
    assert row["name"].startswith("gsm8k-grpo--v1-")
    arena("plan", "--expect-no-changes")

    site.wait(row["name"], "completed")
    assert "1 to create" in arena("plan")
    arena("apply", "--yes")
    served = site.until(lambda: _served(site, row["name"]), seconds=60)
    assert "No changes" in arena("plan", "--expect-no-changes")
    answer = httpx.post(
        f"{served['url']}/generate",
        json={"prompts": ["What is 2 + 3?"], "params": {"max_new_tokens": 4}},
        headers={"Authorization": f"Bearer {site.token}"},
        timeout=60,
    )
    assert len(answer.json()["results"]) == 1
    status = json.loads(arena("status", "--json"))["resources"]
    assert [(r["name"], r["run"]["state"]) for r in status] == [("gsm8k-grpo", "completed")]
    assert set(hosted.authorised) == {f"Bearer {site.token}"}
    assert "has no call for this" in arena("rollback", "deployment/gsm8k", code=3)


def _served(site, name):
    row = site.get("/api/cli/v1/inference/deployments/one", name=name)
    return row if row.get("url") and row["status"] == "serving" else None
