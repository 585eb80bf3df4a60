"""DPO against the formula of its paper, one answer at a time."""

from dataclasses import replace

import pytest
import torch
from populations import make_learner, relative

from arena_runner import ops
from arena_runner.algorithms import dpo
from arena_runner.algorithms.dpo import DpoSettings, Pair
from arena_runner.packing import Group, pack

PAIRS = [
    Pair(0, (5, 6, 7), (8, 9, 2), (10, 2)),
    Pair(1, (5,), (2,), (11, 12, 2)),
    Pair(0, (10, 11), (12, 13, 14, 15, 16, 2), (12, 13, 14, 2)),
    Pair(1, (9, 8, 7, 6), (5, 4), (3,)),
]
PLAIN = {0: DpoSettings(lr=1e-2, beta=0.3), 1: DpoSettings(lr=1e-2, beta=0.05)}
SETTINGS = {
    "plain": PLAIN,
    "smoothed": {m: replace(s, label_smoothing=0.2) for m, s in PLAIN.items()},
    "likelihood beside it": {m: replace(s, nll_alpha=0.7) for m, s in PLAIN.items()},
}


def with_reference(learner):
    return [replace(p, reference=dpo.log_probabilities(learner, p, reference=True)) for p in PAIRS]


def token_logprobs(learner, member, prompt, answer, *, reference=False):
    (piece,) = pack([Group(member, prompt, (answer,), (0,))], 100)
    ones = torch.ones(len(answer), dtype=torch.float64)
    return ops.logprobs(learner.base, learner.population, piece, ones, padded=True, reference=reference)


def expected_loss(learner, pair, s):
    """Straight from the paper."""
    chosen, rejected = (
        token_logprobs(learner, pair.member, pair.prompt_ids, ids)
        for ids in (pair.chosen_ids, pair.rejected_ids)
    )
    with torch.no_grad():
        of_reference = [
            token_logprobs(learner, pair.member, pair.prompt_ids, ids, reference=True).sum()
            for ids in (pair.chosen_ids, pair.rejected_ids)
        ]
    m = (chosen.sum() - of_reference[0]) - (rejected.sum() - of_reference[1])
    right, wrong = torch.sigmoid(s.beta * m).log(), torch.sigmoid(-s.beta * m).log()
    return -(1 - s.label_smoothing) * right - s.label_smoothing * wrong - s.nll_alpha * chosen.mean()


@pytest.mark.parametrize("name", SETTINGS)
def test_its_gradient_is_the_papers_mean_over_the_members_pairs(learner, name):
    settings, pairs = SETTINGS[name], with_reference(learner)
    learner.population.zero_grad()
    metrics = dpo.accumulate(learner, pairs, settings, [0, 1])
    grads = learner.population.grads.clone()
    learner.population.zero_grad()
    total = sum(expected_loss(learner, p, settings[p.member]) / 2 for p in pairs)
    total.backward()

    assert relative(grads, learner.population.grads) <= 1e-9
    assert abs(metrics[0]["loss"] + metrics[1]["loss"] - float(total.detach())) <= 1e-9


def test_micro_batches_change_no_gradient_and_split_no_pair(learner):
    def grads(tokens):
        learner.population.zero_grad()
        dpo.accumulate(replace(learner, tokens_per_backward=tokens), with_reference(learner), PLAIN, [0, 1])
        return learner.population.grads.clone()

    assert relative(grads(1), grads(10_000)) <= 1e-9


def test_dropout_changes_the_policy_and_not_the_pack(learner):
    dropped = {m: replace(s, dropout=0.5) for m, s in PLAIN.items()}

    def grads(settings, tokens):
        learner.population.zero_grad()
        pairs = with_reference(learner)
        dpo.accumulate(replace(learner, tokens_per_backward=tokens), pairs, settings, [0, 1], key=3)
        return learner.population.grads.clone()

    assert relative(grads(dropped, 1), grads(dropped, 10_000)) <= 1e-9
    assert relative(grads(dropped, 10_000), grads(PLAIN, 10_000)) > 0.01


def test_a_policy_that_is_the_reference_has_a_margin_of_exactly_zero(tiny_model_dir):
    learner = make_learner(tiny_model_dir, dtype=torch.float32)
    learner.population.masters.zero_()
    learner.population.sync()

    assert [dpo.margin(learner, p) for p in with_reference(learner)] == [0.0] * 4


def test_training_raises_every_margin(tiny_model_dir):
    learner = make_learner(tiny_model_dir, dtype=torch.float32)
    pairs = with_reference(learner)
    before = [dpo.margin(learner, p) for p in pairs]
    for _ in range(10):
        done = dpo.update(learner, pairs, PLAIN)

    assert all(dpo.margin(learner, p) > b for p, b in zip(pairs, before, strict=True))
    assert done[0].metrics["grad_norm"] > 0
    assert done[0].metrics["accuracy"] == 1.0
