"""From commands to a repository: what was submitted by hand is taken over, and nothing is trained again."""

from __future__ import annotations

import subprocess

import pytest


@pytest.fixture
def repository(sums):
    """An experiment that was submitted by hand and has completed, and a repository that knows nothing of it."""
    submit = ("experiments", "submit", "grpo.yaml", "--reward-file", "reward.py")
    sums(*submit, "--experiment-name", "by-hand", "--wait")
    (sums.folder / "arena.yaml").write_text("name: team\n")
    subprocess.run(["git", "init", "-q"], cwd=sums.folder, check=True)
    return sums


def test_what_was_submitted_by_hand_is_imported_and_nothing_is_trained_again(repository):
    arena = repository
    assert "experiment/by-hand id by-hand run r_" in " ".join(arena("import", "--list").split())
    printed = arena("import", "experiment/by-hand", "by-hand")
    assert "# manifests/by_hand.yaml" in printed
    assert "imports:\n  - kind: experiment\n    name: by-hand\n    id: by-hand" in printed
    wrote = arena("import", "experiment/by-hand", "by-hand", "--write", "experiments/by-hand.yaml")
    assert wrote.splitlines() == [
        "wrote manifests/by_hand.yaml",
        "wrote experiments/by-hand.yaml",
        "wrote datasets/data/sums.csv",
        "wrote datasets/sums.yaml",
        "wrote rewards/reward.py",
        "wrote rewards/reward.yaml",
    ]
    before = arena.json("experiments", "status", "by-hand")
    planned = arena.json("plan")
    acts = {c["address"]: c["action"] for c in planned["changes"]}
    assert acts == {"dataset/sums": "import", "experiment/by-hand": "import", "reward/reward": "create"}
    assert "← experiment/by-hand  import" in arena("plan")
    arena("apply", "--yes", "--allow-dirty")
    assert "No changes" in arena("plan")
    assert arena.json("experiments", "status", "by-hand")["run_id"] == before["run_id"]
    assert "by-hand" not in arena("import", "--list")

    out, err = arena.both("status", "--watch")
    assert "experiment/by-hand v1: completed" in out
    assert "by-hand: completed" in err
    state = arena.json("status")["resources"]
    (run,) = [r["run"] for r in state if r["kind"] == "experiment"]
    found = arena.json("runs", "find", "--fingerprint", run["fingerprint"])["runs"]
    assert [one["run_id"] for one in found] == [run["run_id"]]
    assert run["run_id"] in arena("runs", "find", "--fingerprint", run["fingerprint"][7:19])
    assert "no run with a result" in arena.both("runs", "find", "--fingerprint", "sha256:0000")[1]

    arena("import", "experiment/by-hand", "by-hand", expect=64)
    arena("import", "experiment/by-hand", "1234", expect=64)
    arena("import", expect=64)
    arena("destroy", "--yes")
