import torch

from arena_runner import seeds


def test_keys_differ_by_every_word_and_its_place():
    keys = {
        seeds.row_key(seed, member, iteration, prompt, completion)
        for seed in range(2)
        for member in range(3)
        for iteration in range(3)
        for prompt in range(3)
        for completion in range(3)
    }

    assert len(keys) == 2 * 81
    assert seeds.key(0, "a", "b") != seeds.key(0, "b", "a") != seeds.key(0, "ab")


def test_a_stream_is_pinned_forever():
    """A change of the generator would make every stored run irreproducible."""
    assert seeds.row_key(7, 1, 2, 3, 4) == 6212104493220772282
    drawn = seeds.uniform(torch.tensor([6212104493220772282]), torch.tensor([0]))
    assert drawn.item() == 0.9099268470020874


def test_draws_are_uniform_and_uncorrelated_between_positions():
    keys = torch.tensor([seeds.row_key(0, 0, 0, 0, c) for c in range(200)])
    drawn = seeds.uniform(keys[:, None], torch.arange(500))  # (200, 500)
    counts = torch.histc(drawn, bins=20, min=0, max=1)
    neighbours = torch.corrcoef(torch.stack([drawn[:, :-1].flatten(), drawn[:, 1:].flatten()]))[0, 1]

    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
    assert abs(neighbours) < 0.01


def test_a_draw_is_the_same_alone_and_in_company():
    keys = torch.tensor([seeds.key(0, c) for c in range(9)])

    assert seeds.uniform(keys[4:5], torch.tensor([3])) == seeds.uniform(keys, torch.tensor(3))[4]
