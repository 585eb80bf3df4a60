"""Populations of tiny real models in float64 or fp32, with adapters that do something."""

import torch

from arena_runner.adapters import Population
from arena_runner.engines.base import Completion
from arena_runner.learner import Learner
from arena_runner.models import load_base
from arena_runner.optim import StackedAdamW
from arena_runner.policy_batch import ScoredGroup

TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")


def shake(population, size=0.1, seed=0):
    """Move every B away from zero, so that adapters matter."""
    generator = torch.Generator().manual_seed(seed)
    for site in population.sites:
        shape = population.masters[:, site.b].shape
        population.masters[:, site.b] = size * torch.randn(shape, generator=generator)
    population.sync()


def purely_in_float64(base):
    """Transformers' RMSNorm computes in fp32 whatever the model's dtype; torch's own keeps float64."""
    for module in list(base.model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ in {"LlamaRMSNorm", "Qwen2RMSNorm", "MistralRMSNorm"}:
                norm = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon, dtype=torch.float64)
                norm.weight = child.weight
                setattr(module, name, norm)


def make_learner(
    folder, *, ranks=(2, 5, 3), alphas=(4, 5, 9), dtype=torch.float64, tokens=10_000, device="cpu", **attach
):
    base = load_base(str(folder), device=str(device), dtype=dtype)
    if dtype is torch.float64:
        purely_in_float64(base)
    population = Population.attach(base, targets=TARGETS, ranks=ranks, alphas=alphas, **attach)
    shake(population)
    return Learner(base, population, StackedAdamW(population), tokens)


def scored_groups(vocabulary=250, seed=0):
    """Ragged groups of 2 and 8 of members 0 and 1: a single token, one truncated without EOS, a failed score."""
    generator = torch.Generator().manual_seed(seed)
    eos = 2

    def ids(length, *, ended=True):
        drawn = torch.randint(3, vocabulary, (length,), generator=generator).tolist()
        return (*drawn[:-1], eos) if ended else tuple(drawn)

    def completion(length, *, ended=True):
        noise = torch.rand(length, generator=generator).tolist()
        return Completion(
            ids(length, ended=ended), tuple(-5.5 + x for x in noise), "eos" if ended else "length"
        )

    eight = tuple(completion(n, ended=n != 9) for n in (1, 4, 9, 2, 7, 3, 3, 5))
    return [
        ScoredGroup(0, ids(6), eight, (0.1, 1.0, 0.0, 0.5, 0.5, None, 0.9, 0.2)),
        ScoredGroup(1, ids(4), (completion(1), completion(6)), (1.0, 0.0)),
        ScoredGroup(0, ids(9), (completion(3), completion(8)), (0.3, 0.3)),
    ]


def relative(a, b):
    return float((a - b).detach().norm() / b.detach().norm())
