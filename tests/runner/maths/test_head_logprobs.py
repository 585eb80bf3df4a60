"""The logprob head: exact, and small in what it keeps for the backward pass."""

import torch

from arena_runner import ops


def test_it_is_log_softmax_at_the_temperature_with_its_gradient(monkeypatch):
    monkeypatch.setitem(ops.CHUNK, "cpu", 3)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 11, (7,), generator=generator)
    temperature = torch.linspace(0.5, 2, 7, dtype=torch.float64)
    upstream = torch.randn(7, generator=generator, dtype=torch.float64)

    def plain(x):
        return ((x @ weight.T) / temperature[:, None]).log_softmax(-1).gather(1, targets[:, None])[:, 0]

    (expected,) = torch.autograd.grad((plain(hidden) * upstream).sum(), hidden)
    ours = ops.head_logprobs(hidden, weight, targets, temperature)
    (gradient,) = torch.autograd.grad((ours * upstream).sum(), hidden)

    assert torch.allclose(ours, plain(hidden), atol=1e-12)
    assert torch.allclose(gradient, expected, atol=1e-12)


def test_it_keeps_fifty_times_less_than_the_naive_head():
    tokens, vocabulary, width = 1024, 8192, 32
    hidden = torch.randn(tokens, width, requires_grad=True)
    weight, targets = torch.randn(vocabulary, width), torch.zeros(tokens, dtype=torch.long)
    kept = {"ours": 0, "naive": 0}

    def counting(name):
        def keep(tensor):
            if tensor is not weight:
                kept[name] += tensor.numel() * tensor.element_size()
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)

    with counting("ours"):
        ops.head_logprobs(hidden, weight, targets, torch.ones(tokens))
    with counting("naive"):
        (hidden @ weight.T).log_softmax(-1).gather(1, targets[:, None])

    assert 50 * kept["ours"] <= kept["naive"]
