"""One token: greedy, by temperature, by nucleus; always by the row's own numbers."""

from __future__ import annotations

from collections import Counter

import pytest

from arena_runner.serving.protocol import Params


def frequencies(logits, draws=4000, **params):
    import torch

    from arena_runner.serving.sampling import choose

    drawn = Counter(choose(torch.tensor(logits), Params(**params), 11, position) for position in range(draws))
    return {token: count / draws for token, count in drawn.items()}


def test_no_temperature_or_no_sampling_is_greedy():
    assert frequencies([0.0, 3.0, 1.0], temperature=0) == {1: 1.0}
    assert frequencies([0.0, 3.0, 1.0], do_sample=False) == {1: 1.0}


def test_samples_follow_the_softmax_at_the_temperature():
    import torch

    expected = torch.softmax(torch.tensor([0.0, 2.0, 1.0]) / 0.7, 0).tolist()
    found = frequencies([0.0, 2.0, 1.0], temperature=0.7, top_p=1.0)
    assert [found[token] for token in range(3)] == pytest.approx(expected, abs=0.03)


def test_a_nucleus_holds_the_fewest_tokens_that_reach_its_mass():
    logits = [4.0, 3.0, 1.0, 0.0]  # 0.70, 0.26, 0.03, 0.01
    assert set(frequencies(logits, temperature=1, top_p=0.5)) == {0}
    assert set(frequencies(logits, temperature=1, top_p=0.9)) == {0, 1}


def test_a_flat_vocabulary_needs_more_than_the_first_guess():
    assert len(frequencies([0.0] * 3000, draws=2000, temperature=1, top_p=0.9)) > 1024
