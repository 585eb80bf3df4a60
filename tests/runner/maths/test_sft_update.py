"""SFT: the mean over the member's tokens, whatever the packing."""

from dataclasses import replace

import torch
from populations import make_learner, relative

from arena_runner import ops
from arena_runner.algorithms import sft
from arena_runner.algorithms.sft import Example, SftSettings
from arena_runner.packing import Group, pack

EXAMPLES = [
    Example(0, (5, 6, 7), (8, 9, 2)),
    Example(1, (5,), (2,)),
    Example(0, (10, 11), (12, 13, 14, 15, 16, 2)),
    Example(1, (9, 8, 7, 6), (5, 4)),
]
SETTINGS = {0: SftSettings(lr=1e-2), 1: SftSettings(lr=1e-3)}


def gradients(learner, settings=SETTINGS, **changes):
    learner = replace(learner, **changes)
    learner.population.zero_grad()
    metrics = sft.accumulate(learner, EXAMPLES, settings, list(settings), key=3)
    return metrics, learner.population.grads.clone()


def test_it_is_cross_entropy_of_the_targets_mean_over_the_members_tokens(learner):
    metrics, grads = gradients(learner)
    learner.population.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for e in EXAMPLES:
        (piece,) = pack([Group(e.member, e.prompt_ids, (e.target_ids,), (0,))], 100)
        logp = ops.logprobs(
            learner.base, learner.population, piece, torch.ones(len(e.target_ids)), padded=True
        )
        total = total - logp.sum() / {0: 9, 1: 3}[e.member]
    total.backward()

    assert relative(grads, learner.population.grads) <= 1e-9
    assert abs(metrics[0]["loss"] + metrics[1]["loss"] - float(total.detach())) <= 1e-12


def test_micro_batches_change_no_gradient(learner):
    assert relative(gradients(learner, tokens_per_backward=1)[1], gradients(learner)[1]) <= 1e-9


def test_dropout_masks_depend_on_row_and_position_not_on_the_pack(learner):
    dropped = {m: replace(s, dropout=0.5) for m, s in SETTINGS.items()}
    whole, split = gradients(learner, dropped)[1], gradients(learner, dropped, tokens_per_backward=1)[1]

    assert relative(split, whole) <= 1e-9
    assert relative(whole, gradients(learner)[1]) > 0.01


def test_training_raises_the_likelihood_of_the_rows(tiny_model_dir):
    learner = make_learner(tiny_model_dir, dtype=torch.float32)
    before = sft.log_likelihood(learner, EXAMPLES)
    for _ in range(5):
        done = sft.update(learner, EXAMPLES, SETTINGS)
    after = sft.log_likelihood(learner, EXAMPLES)

    assert all(b > a for a, b in zip(before, after, strict=True))
    assert done[0].metrics["grad_norm"] > 0
    assert done[1].metrics["tokens"] == 3


def test_likelihood_is_per_token_and_of_each_rows_own_member(learner):
    alone = [sft.log_likelihood(learner, [e])[0] for e in EXAMPLES]

    assert torch.allclose(torch.tensor(sft.log_likelihood(learner, EXAMPLES)), torch.tensor(alone), atol=1e-9)
