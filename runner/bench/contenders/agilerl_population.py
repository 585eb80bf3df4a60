"""AgileRL's GRPO population on a CPU; runs in AgileRL's own environment.

Two things are needed for it to run at all: `HAS_LIGER_KERNEL` is switched off before anything is imported, because
liger's triton kernels are patched into the model wherever the package is installed, and members beyond the first are
made by `clone`, because a population of adapted models cannot be built. Members then train one after another, as in
`train_llm_rollout`, whose steps these are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import agilerl_on_cpu  # noqa: F401 - what it does on import must come first
import torch
from agilerl.algorithms import GRPO
from agilerl.algorithms.core.registry import HyperparameterConfig, RLParameter
from agilerl.hpo.mutation import Mutations
from agilerl.hpo.tournament import TournamentSelection
from agilerl.llm_envs import RolloutCollector, RolloutHarness
from agilerl.llm_envs.rubrics import reward_fn_to_rubric
from agilerl.population import Population
from agilerl.rollouts.on_policy import collate_llm_rollouts, collect_rollouts_llm
from agilerl.utils.utils import run_selection_and_mutation
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging
from turns import asked_of, serve


class Members:
    """N members and what `train_llm_rollout` does with them in one iteration."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        torch.set_num_threads(1)
        logging.set_verbosity_error()
        torch.manual_seed(settings.get("seed", 0))
        self.settings = settings
        self.reward = import_module(f"rewards.{settings['reward']}").reward
        self.tokenizer = AutoTokenizer.from_pretrained(settings["model"])
        lrs = settings.get("lrs") or [1e-5] * settings["members"]
        first = self._first(lrs[0])
        self.agents = [first] + [first.clone(index=place) for place in range(1, settings["members"])]
        for agent, lr in zip(self.agents, lrs, strict=True):
            agent.lr = lr
            for group in agent.optimizer.optimizer.param_groups:
                group["lr"] = lr
        self.collector = RolloutCollector(self._env, settings["prompts"], settings["completions"])
        self.test_env = self._env()
        self.seed = 0
        size = settings["members"]
        self.selection = TournamentSelection(2, elitism=True, population_size=size)
        self.mutation = Mutations(0.2, 0.0, 0.0, 0.0, 0.0, 0.8, rand_seed=settings.get("seed", 0))

    def _first(self, lr: float) -> GRPO:
        settings = self.settings
        low, high = settings.get("lr_span", (1e-6, 1e-3))
        step = settings.get("lr_step", 1.25)
        rate = RLParameter(min=low, max=high, grow_factor=step, shrink_factor=1 / step)
        return GRPO(
            pad_token_id=self.tokenizer.pad_token_id,
            pad_token=self.tokenizer.pad_token,
            actor_network=AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32),
            lora_config=LoraConfig(
                r=settings["rank"],
                lora_alpha=2 * settings["rank"],
                target_modules=settings["targets"],
                lora_dropout=0.0,
                task_type="CAUSAL_LM",
            ),
            hp_config=HyperparameterConfig(lr=rate),
            batch_size=settings["prompts"],
            group_size=settings["completions"],
            beta=settings.get("beta", 0.001),
            lr=lr,
            max_grad_norm=1.0,
            temperature=1.0,
            top_k=0,
            adv_norm="mean_std",
            max_output_tokens=settings["tokens"],
            min_output_tokens=settings["tokens"] if settings["all_tokens"] else None,
            max_model_len=settings["context"],
            gradient_checkpointing=False,
            use_liger_loss=False,
            device="cpu",
            seed=settings.get("seed", 0),
        )

    def _env(self) -> RolloutHarness:
        rows = self.settings["rows"]
        return RolloutHarness.from_dataset(
            rows["train"],
            reward_fn_to_rubric(self._score),
            self.tokenizer,
            test_dataset=rows["eval"],
            max_model_len=self.settings["context"],
        )

    def _score(self, completion: str, answer: str, question: str) -> float:
        return self.reward(question, answer, completion)

    def iterate(self) -> dict[str, Any]:
        """Generate, score, update: every member in turn."""
        group, tokens = self.settings["completions"], 0
        for agent in self.agents:
            agent.set_reference_policy(self.collector.num_epochs)
            agent.init_training_step()
            ids, masks, turns, rewards, steps, self.seed, logps, pixels = collect_rollouts_llm(
                agent=agent,
                env=self.collector,
                n_steps=1,
                batch_size=self.collector.batch_size,
                group_seed=self.seed,
            )
            tokens += sum(int(mask.sum()) for mask in masks)
            batch = collate_llm_rollouts(
                ids, masks, turns, rewards, logps, group_size=group, all_pixel_values=pixels
            )
            agent.learn(batch.experiences(), turn_ids=batch.turn_ids, sampling_logps=batch.sampling_logps)
            agent.finalize_training_step(steps)
        return {"tokens": tokens}

    def evaluate(self, rows: int) -> dict[str, Any]:
        """Fitness of every member."""
        return {"fitness": [float(agent.test(self.test_env, loop=rows)) for agent in self.agents]}

    def evolve(self) -> None:
        """Selection, clones, mutation."""
        population = Population(agents=self.agents, loggers=[])
        population.update(
            run_selection_and_mutation(
                self.selection,
                population=population.agents,
                mutation=self.mutation,
                env_name="bench",
                language_model=True,
            )
        )
        self.agents = list(population.agents)

    def sizes(self) -> dict[str, Any]:
        """Bytes of parameters and optimizer state, every tensor counted once."""
        seen: dict[int, int] = {}
        for agent in self.agents:
            tensors = list(agent.actor.parameters()) + list(agent.actor.buffers())
            for state in agent.optimizer.optimizer.state.values():
                tensors += [value for value in state.values() if torch.is_tensor(value)]
            for tensor in tensors:
                storage = tensor.untyped_storage()
                seen[storage.data_ptr()] = storage.nbytes()
        return {"bytes": sum(seen.values())}

    def tell(self) -> dict[str, Any]:
        """Learning rates, for the record."""
        return {"lrs": [float(agent.lr) for agent in self.agents]}


def build(settings: Mapping[str, Any]) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What can be asked."""
    return asked_of(Members(settings))


if __name__ == "__main__":
    serve(build)
