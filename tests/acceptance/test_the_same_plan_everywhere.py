"""The acceptance case `deterministic`: one repository, one plan, whoever writes, checks out and plans it."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from infra_repo import InfraRepo
from places import REPOSITORY, ROOT, Place, reordered
from ruamel.yaml import YAML

PLAN_ID = Path(__file__).with_name("plan_id.txt")


def shuffled(path, chance):
    """The same YAML with its keys in another order, other quotes, flow style and comments."""
    yaml = YAML()
    yaml.allow_duplicate_keys = False
    tree = yaml.load(path.read_text())

    writer = YAML()
    writer.default_flow_style = chance.choice([True, False])
    with path.open("w") as file:
        file.write("# written by somebody else\n")
        writer.dump(reordered(json.loads(json.dumps(tree)), chance), file)


def test_deterministic(tmp_path):
    """One plan_id, whatever the order of files and keys, style, comments, place of the checkout or line ends."""
    repo = InfraRepo.make(tmp_path / "first", REPOSITORY)
    first = Place(repo).plan()
    assert Place(repo).plan().to_json() == first.to_json()
    ids = {first.plan_id}
    for number in range(3):
        chance = random.Random(number)
        names = list(REPOSITORY)
        chance.shuffle(names)
        other = InfraRepo.make(
            tmp_path / f"copy {number}" / "deep", {name: REPOSITORY[name] for name in names}
        )
        for path in other.root.rglob("*.yaml"):
            if path.name != "arena.yaml":
                shuffled(path, chance)
        shutil.move(other.root / "rewards", other.root / "moved")
        shutil.move(other.root / "moved", other.root / "rewards")
        ids.add(Place(other).plan().plan_id)
    windows = InfraRepo.make(tmp_path / "windows", {**REPOSITORY, ".gitattributes": "* text=auto\n"})
    for path in windows.root.rglob("*"):
        if path.is_file() and ".git" not in path.relative_to(windows.root).parts:
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    ids.add(Place(windows).plan().plan_id)
    ids |= set(planned_elsewhere(tmp_path / "first"))
    assert len(ids) == 1
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PLAN_ID.write_text(first.plan_id + "\n")
    assert first.plan_id == PLAN_ID.read_text().strip()  # a new knob is a new id: UPDATE_GOLDEN=1


PLAN_IT = """
import sys
from pathlib import Path
from arena_gitops.app import World, plan
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.repo.load import load
from arena_gitops.spec.wire import Tier
tier = Tier(id="medium", num_cpus=8, ram_gb=32, credits_per_node_hour=2.0)
print(plan(World(MemoryPlatform(tiers=[tier])), load(Path(sys.argv[1])), target="local").plan_id)
"""


def planned_elsewhere(root):
    """By every Python here that has what it takes, each with hashes of its own."""
    found = {sys.executable, *(p for n in range(11, 16) if (p := shutil.which(f"python3.{n}")))}
    needs = "import pydantic, ruamel.yaml, click, httpx"
    able = [
        p for p in found if subprocess.run([p, "-c", needs], capture_output=True, check=False).returncode == 0
    ]
    for seed, python in enumerate([sys.executable, *able]):
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed + 1)}
        done = subprocess.run(
            [python, "-c", PLAN_IT, str(root)], env=environ, capture_output=True, text=True, check=True
        )
        yield done.stdout.strip()
