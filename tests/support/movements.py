"""How far a member moves before its weights are sent: a long way, or one optimizer step."""

import torch

SIZES = ("large", "one step at lr 5e-6")


def move(population, member, size, seed=3):
    """Change a member's masters and hand them on as an update would."""
    span = population.span(member)
    drawn = torch.randn(population.masters[span].shape, generator=torch.Generator().manual_seed(seed))
    population.masters[span] += 0.05 * drawn if size == "large" else 5e-6 * drawn.sign()
    population.sync()
