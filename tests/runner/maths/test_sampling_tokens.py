"""Inverse-CDF sampling over a vocabulary in two levels."""

import pytest
import torch

from arena_runner.engines.sampling import choose

GREEDY = torch.tensor([True])


def drawn(logits, uniforms, temperature=1.0):
    n = len(uniforms)
    return choose(
        logits.expand(n, -1),
        torch.full((n,), temperature),
        uniforms.double(),
        torch.zeros(n, dtype=torch.bool),
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_equally_spaced_uniforms_give_every_token_its_share(temperature):
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    n = 20_000
    tokens, logprobs = drawn(logits, (torch.arange(n) + 0.5) / n, temperature)
    expected = (logits / temperature).log_softmax(-1)
    share = torch.bincount(tokens, minlength=1000) / n

    assert (share - expected.exp()).abs().max() <= 1.0 / n + 1e-6
    assert (logprobs - expected[tokens]).abs().max() <= 1e-5


def test_a_token_without_mass_is_never_drawn_even_at_the_edges():
    logits = torch.full((600,), -1e9)
    logits[[7, 300, 511]] = 0.0
    edges = torch.tensor([0.0, 1 / 3, 2 / 3, 1 - 2**-53], dtype=torch.float64)
    tokens, _ = drawn(logits, edges)

    assert tokens[[0, 3]].tolist() == [7, 511]
    assert set(tokens.tolist()) <= {7, 300, 511}


def test_greedy_rows_take_the_likeliest_token_at_temperature_one():
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    token, logprob = choose(logits, torch.tensor([0.1]), torch.tensor([0.999]).double(), GREEDY)

    assert token.item() == 1
    assert logprob.item() == pytest.approx(logits.log_softmax(-1)[0, 1].item())
