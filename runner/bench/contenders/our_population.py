"""Our population: N adapters on one base, all members in one batch.

The very parts the training loop is made of, without its events and files: task, evolution, optimizer. Completions of
a measured iteration run to their full length, so that all contenders sample as many tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from turns import asked_of, serve

from arena_gitops.spec.knobs import GroupKnobs
from arena_gitops.spec.manifest import parse_manifest
from arena_gitops.spec.population import Range
from arena_runner.adapters import Population
from arena_runner.checks.main import local_reward
from arena_runner.engines.torch import TorchEngine
from arena_runner.learner import Learner
from arena_runner.models import load_base
from arena_runner.optim import StackedAdamW
from arena_runner.population.lineage import Rules, evolve
from arena_runner.population.member import Member
from arena_runner.population.mutate import Odds
from arena_runner.rollouts.prompts import Prompt, Renderer
from arena_runner.rollouts.scored import Scored
from arena_runner.sandbox import RewardPool

REWARDS = Path(__file__).resolve().parents[1] / "rewards"


class Members:
    """N places and what the loop does with them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        torch.set_num_threads(1)
        self.settings = settings
        dtype = getattr(torch, settings.get("dtype", "float32"))
        base = load_base(settings["model"], dtype=dtype)
        if settings["all_tokens"]:
            base = replace(base, eos_ids=frozenset())
        count, rank = settings["members"], settings["rank"]
        population = Population.attach(
            base,
            targets=settings["targets"],
            ranks=[rank] * count,
            alphas=[2 * rank] * count,
            seed=settings.get("seed", 0),
        )
        self.learner = Learner(
            base, population, StackedAdamW(population), settings.get("tokens_per_backward", 1024)
        )
        self.engine = TorchEngine(base, population, rows_in_flight=settings.get("rows_in_flight", 64))
        render = Renderer(base.tokenizer, settings.get("template"), "question")
        self.rows = {split: [render.prompt(row) for row in rows] for split, rows in settings["rows"].items()}
        self.pool = RewardPool(
            local_reward(REWARDS / f"{settings['reward']}.py", "reward", (), {}), REWARDS
        ).__enter__()
        self.task = self._task()
        knobs = self.task.knobs.hyperparameters()
        lrs = settings.get("lrs") or [1e-5] * count
        self.members = tuple(Member(place, {**knobs, "lr": lr}) for place, lr in enumerate(lrs))
        low, high = settings.get("lr_span", (1e-6, 1e-3))
        step = settings.get("lr_step", 1.25)
        span = Range(min=low, max=high, grow_factor=step, shrink_factor=1 / step)
        self.rules = Rules(2, True, Odds(0.2, 0.8), {"lr": span}, settings.get("seed", 0))
        self.generation = 0
        self.scores: list[tuple[float, ...]] = []

    def _task(self) -> Scored:
        settings = self.settings
        manifest = parse_manifest(
            {
                "algorithm": {
                    "name": "GRPO",
                    "batch_size": settings["prompts"],
                    "group_size": settings["completions"],
                    "lr": 1e-5,
                    "beta": settings.get("beta", 0.001),
                    "max_grad_norm": 1.0,
                    "temperature": 1.0,
                    "max_output_tokens": settings["tokens"],
                },
                "environment": {"name": "bench"},
                "training": {"max_steps": 1000, "evo_steps": 1},
                "network": {
                    "pretrained_model_name_or_path": settings["model"],
                    "max_context_length": settings["context"],
                },
            }
        ).manifest
        assert isinstance(manifest.algorithm, GroupKnobs)
        prompts: list[Prompt] = self.rows["train"]
        return Scored(
            self.learner,
            self.engine,
            self.pool,
            prompts,
            manifest.algorithm,
            settings["context"],
            settings.get("seed", 0),
        )

    def iterate(self) -> dict[str, Any]:
        """Generate, score, update: all members at once."""
        done = self.task.iterate(self.members)
        self.members = tuple(
            member.after_iteration(
                prompts=done[member.index].prompts,
                steps=done[member.index].steps,
                signal=done[member.index].signal,
            )
            for member in self.members
        )
        return {"tokens": sum(each.tokens for each in done.values())}

    def evaluate(self, rows: int) -> dict[str, Any]:
        """Fitness of every place."""
        judged = self.task.judge([member.index for member in self.members], self.rows["eval"][:rows])
        self.scores = [judged[member.index].scores for member in self.members]
        return {"fitness": [sum(scores) / len(scores) for scores in self.scores]}

    def evolve(self) -> None:
        """Selection, copies, mutation."""
        self.generation += 1
        evolved = evolve(self.members, self.scores, self.rules, self.generation)
        for parent, place in evolved.copies:
            self.learner.population.copy(parent, place)
            self.learner.optimizer.copy(parent, place)
        self.members = evolved.members

    def sizes(self) -> dict[str, Any]:
        """Bytes of parameters (masters and their rounded copies) and optimizer state, every tensor counted once."""
        population, optimizer = self.learner.population, self.learner.optimizer
        tensors = [*self.learner.base.model.parameters(), *self.learner.base.model.buffers()]
        tensors += [population.masters, optimizer.mean, optimizer.square]
        for module in population._modules.values():  # noqa: SLF001 - what is counted is inside
            tensors += [module.a.rounded, module.b.rounded]
        seen = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return {"bytes": sum(seen.values())}

    def tell(self) -> dict[str, Any]:
        """Learning rates, for the record."""
        return {"lrs": [member.hyperparameters["lr"] for member in self.members]}


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked."""
    return asked_of(Members(settings))


if __name__ == "__main__":
    serve(build)
