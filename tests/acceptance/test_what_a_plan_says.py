"""The acceptance cases of planning, each under its own name, over repositories on disk.

What a plan says is here; what takes a server or a while (unknown states, speed) is beside it.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from infra_repo import InfraRepo
from markdown_it import MarkdownIt
from places import EXPERIMENT, RECIPE, REPOSITORY, ROOT, Place

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.errors import BlockedError, RepoError
from arena_gitops.plan.model import Action, CheckStatus
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report import github, text
from arena_gitops.spec.wire import Owner


@pytest.fixture
def repo(tmp_path):
    return InfraRepo.make(tmp_path / "infra", REPOSITORY)


@pytest.fixture
def place(repo):
    found = Place(repo)
    found.applied()
    return found


def arena(folder, *args):
    environ = {k: v for k, v in os.environ.items() if k not in {"ARENA_BASE_URL", "CI", "GITHUB_ACTIONS"}}
    command = [sys.executable, "-m", "arena_gitops.cli", "-C", str(folder), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.parametrize("name", ["infra-repo", "gsm8k-tutorial", "sft-then-grpo"])
def test_idempotent(tmp_path, name):
    """Every example: applied once, there is nothing to do."""
    source = ROOT / "examples" / name
    repo = InfraRepo.make(tmp_path / name, {})
    shutil.copytree(source, repo.root, dirs_exist_ok=True)
    repo.commit()
    try:
        desired = repo.load()
    except RepoError as error:
        pytest.skip(f"the example needs files that are made first: {error.diagnostics[0].code}")
    world = World(MemoryPlatform())
    first = plan(world, desired, target="local")
    blocked = [c for c in first.changes if c.action is Action.BLOCKED]
    assert not blocked, blocked
    apply(world, first, desired, Consent.APPROVED)
    again = plan(world, desired, target="local")
    assert not again.has_changes
    assert "No changes" in text.render(again)


def test_classes(place):
    repo = place.repo
    repo.edit(RECIPE, "lr: 1e-5", "lr: 3e-5")
    assert place.acts() == {"experiment/sums-grpo": "new_version"}
    place.applied()
    repo.edit(RECIPE, "lr: 3e-5", "lr: 1e-5")
    revert = place.change()
    assert (revert.action, revert.cost.max) == (Action.REUSE, 0.0)
    place.applied()
    repo.edit(EXPERIMENT, "description: sums", "description: small sums")
    assert place.acts() == {"experiment/sums-grpo": "update"}
    repo.edit(RECIPE, "max_steps: 1_000", "max_steps: 2_000")
    assert place.acts() == {"experiment/sums-grpo": "resume"}
    repo.edit(RECIPE, "max_steps: 2_000", "max_steps: 500")
    repo.edit(EXPERIMENT, "description: small sums", "description: sums")
    lowered = place.change()
    assert (lowered.action, lowered.reason) == (Action.NOOP, "budget_satisfied")
    assert "nothing is taken back" in lowered.message
    repo.edit(RECIPE, "lr: 1e-5", "lr: 3e-4")
    repo.edit(RECIPE, "max_steps: 500", "max_steps: 2_000")
    assert place.acts() == {"experiment/sums-grpo": "new_version"}


def test_dataset_stale(place):
    repo = place.repo
    old = place.repo.load().resources
    digest = next(r.spec["digest"] for a, r in old.items() if a.kind == "dataset")
    repo.write(
        "experiments/pinned.yaml",
        REPOSITORY[EXPERIMENT]
        .replace("name: sums-grpo", "name: pinned")
        .replace("dataset: sums", f"dataset: sums@{digest}"),
    )
    place.applied()
    before = place.runs()
    repo.edit("datasets/data/sums.csv", "#### 2", "#### 3")
    planned = place.plan()
    assert {c.address: c.action.value for c in planned.changes if c.action is not Action.NOOP} == {
        "dataset/sums": "new_version",
        "experiment/sums-grpo": "stale",
    }
    assert planned.changes[0].data.changed == 1
    assert any("--rerun-stale dataset/sums" in note for c in planned.changes for note in c.notes)
    place.applied()
    assert place.runs() == before


def test_reward_edit(place):
    repo = place.repo
    repo.edit("rewards/exact.py", "    return near", "    # the last word counts\n    return near")
    assert place.acts() == {"reward/exact": "update"}
    repo.edit("rewards/exact.py", "' '", "'  '")
    assert place.acts() == {"reward/exact": "new_version", "experiment/sums-grpo": "new_version"}
    repo.edit("rewards/exact.py", "'  '", "' '")
    repo.edit("rewards/lib/near.py", "[-1]", "[0]")
    assert place.acts() == {"reward/exact": "new_version", "experiment/sums-grpo": "new_version"}
    (file,) = [f for f in place.change("reward/exact").code if f.path.endswith("near.py")]
    assert any(line.startswith("+") and "[0]" in line for line in file.lines)


def test_failed_is_held(repo):
    place = Place(repo, RunScript.fails("no memory"))
    place.applied()
    assert place.runs() == 1
    for _ in range(5):
        assert place.change().action is Action.HELD
        place.applied()
    assert place.runs() == 1


def _delete_all(repo):
    for path in list(repo.root.rglob("*.yaml")):
        if path.name != "arena.yaml":
            path.unlink()


def _break_the_roots(repo):
    repo.write("arena.yaml", "name: team\nproject: maths\nroots: [elsewhere]\n")


def _leave_out_by_a_sparse_checkout(repo):
    repo.git("sparse-checkout", "set", "--no-cone", "/arena.yaml")


def _become_an_empty_submodule(repo):
    repo.git("rm", "-rq", "deployments")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},deployments")
    (repo.root / "deployments").mkdir(exist_ok=True)


def _clone_shallow_and_sparse(repo):
    there = repo.root.parent / "clone"
    repo.git("clone", "-q", "--depth", "1", "--sparse", repo.root.as_uri(), str(there))
    return InfraRepo(there)


@pytest.mark.parametrize(
    "accident",
    [
        _delete_all,
        _break_the_roots,
        _leave_out_by_a_sparse_checkout,
        _become_an_empty_submodule,
        _clone_shallow_and_sparse,
    ],
)
def test_empty_repo_guard(place, accident):
    """Exit 3 or 65, and nothing is retired."""
    place.repo = accident(place.repo) or place.repo
    try:
        planned = place.plan()
    except RepoError as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.exit_code == 65
        return
    assert not planned.applyable
    with pytest.raises(BlockedError) as caught:
        apply(place.world, planned, place.repo.load(), Consent.APPROVED)
    assert caught.value.exit_code == 3
    assert len(place.world.platform.observe(planned_owner(planned)).resources) == 5


def planned_owner(planned):
    return Owner(stack=planned.stack, namespace=planned.namespace)


CANARY = "sk-ant-api03-" + "Q7" * 40


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (RECIPE, "  name: GRPO\n", f"  name: GRPO\n  # {CANARY}\n"),
        (EXPERIMENT, "description: sums", f"description: {CANARY}"),
        ("datasets/data/sums.csv", "question,answer", f"question,answer,{CANARY}"),
        ("rewards/exact.py", "def reward", f"KEY = '{CANARY}'\n\n\ndef reward"),
        ("rewards/lib/near.py", "def score", f"KEY = '{CANARY}'\n\n\ndef score"),
    ],
    ids=["manifest", "description", "header", "reward", "helper"],
)
def test_secrets(repo, path, old, new):
    """A literal secret is refused, in a comment too, and nothing repeats it."""
    repo.edit(path, old, new)
    done = arena(repo.root, "plan", "--offline", "--against", "git:HEAD", "-o", str(repo.root / "plan.json"))
    assert done.returncode == 65, done.stdout
    assert CANARY not in done.stdout + done.stderr
    assert not (repo.root / "plan.json").exists() or CANARY not in (repo.root / "plan.json").read_text()


def test_exit_codes(repo):
    offline = ("plan", "--offline", "--against", "git:HEAD")
    assert arena(repo.root, "plan", "--no-such-flag").returncode == 64
    assert arena(repo.root, *offline, "--detailed-exitcode").returncode == 0
    assert arena(repo.root, *offline, "--expect-no-changes").returncode == 0
    repo.edit(RECIPE, "lr: 1e-5", "lr: 3e-5")
    assert arena(repo.root, *offline).returncode == 0
    assert arena(repo.root, *offline, "--detailed-exitcode").returncode == 2
    assert arena(repo.root, *offline, "--expect-no-changes").returncode == 8
    repo.edit("arena.yaml", "project: maths", "project: maths\npolicy: {require_owner: true}")
    repo.commit()
    repo.edit(RECIPE, "lr: 3e-5", "lr: 5e-5")
    assert arena(repo.root, *offline, "--detailed-exitcode").returncode == 3
    repo.write("arena.yaml", "name: [\n")
    assert arena(repo.root, *offline).returncode == 65


def test_comment_budget(tmp_path):
    """300 resources: the comment fits, what must not be overlooked is in it, and nothing is left open."""
    files = dict(REPOSITORY)
    for number in range(300):
        files[f"experiments/e{number:03}.yaml"] = REPOSITORY[EXPERIMENT].replace(
            "name: sums-grpo", f"name: e{number:03}\n        set: {{mutation.rand_seed: {number}}}"
        )
    place = Place(InfraRepo.make(tmp_path / "large", files))
    place.applied()
    place.repo.remove("deployments/sums.yaml")
    place.repo.edit(RECIPE, "lr: 1e-5", "lr: 3e-5")
    place.repo.edit("rewards/lib/near.py", "[-1]", "[0]")
    planned = place.plan()
    where = github.Place("local", head="c0ffee" * 6, run_url="https://github.example/run/1")
    comment, summary = github.comment(planned, where), github.summary(planned, where)
    assert len(comment) <= 65_536
    assert len(summary.encode()) <= 1_048_576
    for body in (comment, summary):
        assert planned.plan_id in body
        assert "**undeploys** deployment/sums" in body
        assert body.count("<details>") == body.count("</details>")
        fences = [t for t in MarkdownIt().parse(body) if t.type == "fence"]
        assert all(body.count(t.markup) % 2 == 0 for t in fences)


def test_rename(place):
    repo = place.repo
    shutil.move(repo.root / EXPERIMENT, repo.root / "experiments" / "other-file.yaml")
    shutil.move(repo.root / "rewards" / "exact.py", repo.root / "rewards" / "exact2.py")
    repo.write("rewards/exact.yaml", "kind: Reward\nname: exact\nfile: exact2.py\n")
    assert set(place.acts().values()) <= {"update"}
    assert place.plan().summary["new_version"] == 0
    repo.edit("experiments/other-file.yaml", "name: sums-grpo", "name: sums-new")
    repo.edit("deployments/sums.yaml", "experiment: sums-grpo", "experiment: sums-new")
    moved = place.change("experiment/sums-new")
    assert (moved.action, moved.previous_address) == (Action.MOVE, "experiment/sums-grpo")
    shutil.move(repo.root / "experiments" / "other-file.yaml", repo.root / EXPERIMENT)
    repo.edit(RECIPE, "lr: 1e-5", "lr: 3e-5")
    edited = place.change("experiment/sums-new")
    assert (edited.action, edited.reason) == (Action.BLOCKED, "rename_or_new")
    assert "moved: [{from: experiment/sums-grpo, to: experiment/sums-new}]" in edited.message


def test_import(repo):
    """What was made by hand is taken over: the next plan is clean, and no run was started."""
    place = Place(repo)
    by_hand = replace(repo.load(), owner=Owner(stack="imperative"))
    apply(place.world, plan(place.world, by_hand, target="local"), by_hand, Consent.APPROVED)
    (made,) = place.runs_of(by_hand.owner)
    addresses = list(repo.load().resources)
    repo.edit(
        "arena.yaml",
        "project: maths",
        "project: maths\nimports:\n  - {kind: project, name: maths, id: maths}",
    )
    repo.write(
        "experiments/imports.yaml",
        "imports:\n"
        + "".join(
            f"  - {{kind: {a.kind}, name: {a.name}, id: {a.name}}}\n"
            for a in addresses
            if a.kind != "project"
        ),
    )
    planned = place.applied()
    assert {c.address: c.action.value for c in planned.changes} == dict.fromkeys(
        map(str, addresses), "import"
    )
    assert re.search(r"← experiment/sums-grpo +import", text.render(planned))
    assert not place.plan().has_changes
    assert place.runs_of(repo.load().owner) == [made]
    assert place.runs() == 1
    repo.write("experiments/imports.yaml", "imports: [{kind: experiment, name: nobody, id: 12}]\n")
    assert repo.problems() == ["experiments/imports.yaml:1:11 import-undeclared"]


def test_every_check_that_fails_blocks(repo):
    repo.edit("arena.yaml", "project: maths", "project: maths\npolicy: {require_owner: true, max_nodes: 1}")
    planned = Place(repo).plan()
    failed = [check.name for check in planned.checks if check.status is CheckStatus.FAIL]
    assert failed == ["policy.require_owner"]
    assert re.search(r"^fails +policy\.require_owner", text.render(planned), re.MULTILINE)
