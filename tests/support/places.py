"""The repository of the acceptance cases of planning, and a platform it is applied to."""

import json
from pathlib import Path

from infra_repo import FILES
from jsonschema import Draft202012Validator

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.spec.wire import Tier

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "schemas" / "plan.schema.json").read_text())
TIER = Tier(id="medium", num_cpus=8, ram_gb=32, credits_per_node_hour=2.0)
REWARD = "from lib import near\n\n\ndef reward(question, answer, completion):\n    return near.score(answer, completion, ' ')\n"
NEAR = "def score(answer, completion, gap):\n    return float(answer.split(gap)[-1] in completion)\n"
REPOSITORY = {
    **FILES,
    "rewards/exact.py": REWARD,
    "rewards/lib/near.py": NEAR,
    "experiments/sums-grpo.yaml": """\
        kind: Experiment
        name: sums-grpo
        description: sums
        manifest: ../manifests/grpo.yaml
        dataset: sums
        reward: exact
        tier: medium
        budget: {max_runtime: 1h}
        """,
}
EXPERIMENT, RECIPE = "experiments/sums-grpo.yaml", "manifests/grpo.yaml"


def reordered(value, chance):
    """The same mappings with their keys in another order."""
    if not isinstance(value, dict):
        return value
    items = [(key, reordered(inner, chance)) for key, inner in value.items()]
    chance.shuffle(items)
    return dict(items)


class Place:
    """A repository, and a platform it is applied to."""

    def __init__(self, repo, runs=None):
        self.repo = repo
        self.world = World(MemoryPlatform(tiers=[TIER], runs=runs))

    def plan(self, **options):
        """The plan of what is on disk; its document is valid by the published schema."""
        found = plan(self.world, self.repo.load(), target="local", **options)
        Draft202012Validator(SCHEMA).validate(json.loads(found.to_json()))
        return found

    def applied(self):
        planned = self.plan()
        apply(self.world, planned, self.repo.load(), Consent.APPROVED)
        return planned

    def acts(self, **options):
        return {c.address: c.action.value for c in self.plan(**options).changes if c.action.acts}

    def change(self, address="experiment/sums-grpo", **options):
        return next(c for c in self.plan(**options).changes if c.address == address)

    def runs_of(self, owner):
        found = self.world.platform.observe(owner).resources.values()
        return [document.run.run_id for document in found if document.run]

    def runs(self):
        return len(self.world.platform._ledger.runs)
