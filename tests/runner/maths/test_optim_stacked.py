"""Together the members take exactly the steps each would take alone with torch's AdamW."""

import pytest
import torch

from arena_runner.optim import DivergedError, StackedAdamW

LR = {0: 1e-2, 1: 3e-4, 2: 5e-2}
CLIP = {0: 0.5, 1: 0.0, 2: 100.0}
DECAY = 0.1


def alone(population, member):
    """The member's matrices as separate parameters under torch's own optimizer."""
    rows = population.masters[population.span(member)]
    parameters = [
        torch.nn.Parameter(rows[:, columns].clone())
        for site in population.sites
        for columns in (site.a, site.b)
    ]
    return parameters, torch.optim.AdamW(parameters, lr=LR[member], weight_decay=DECAY)


def gradients(population, member, step):
    generator = torch.Generator().manual_seed(100 * member + step)
    rows = population.masters[population.span(member)]
    return [
        torch.randn(rows[:, columns].shape, generator=generator, dtype=rows.dtype)
        for site in population.sites
        for columns in (site.a, site.b)
    ]


def step_alone(parameters, optimizer, grads, member):
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, CLIP[member] or float("inf"))
    optimizer.step()
    return float(norm)


def test_n_together_equal_n_runs_of_adamw_with_one_of_them_skipped(learner):
    population = learner.population
    stacked = StackedAdamW(population, weight_decay=DECAY)
    runs = {m: alone(population, m) for m in range(3)}
    for step in range(6):
        stepping = [m for m in range(3) if not (m == 1 and step % 2)]  # member 1 skips every other step
        expected = {}
        for m in range(3):
            grads = gradients(population, m, step)
            population.grads[population.span(m)] = torch.cat(grads, dim=1)
            if m in stepping:
                expected[m] = step_alone(*runs[m], grads, m)
        norms = stacked.step({m: LR[m] for m in stepping}, CLIP)

        assert norms == pytest.approx(expected, rel=1e-12)
    for m, (parameters, _) in runs.items():
        own = torch.cat([p.detach() for p in parameters], dim=1)
        assert torch.allclose(population.masters[population.span(m)], own, rtol=1e-10, atol=1e-14)
    assert stacked.steps == [6, 3, 6]


def test_a_skipped_member_keeps_every_bit(learner):
    population, stacked = learner.population, learner.optimizer
    for step in range(2):
        population.grads.normal_()
        stacked.step(LR if step == 0 else {0: 1.0, 2: 1.0}, CLIP)
        if step == 0:
            before = {k: v.clone() for k, v in (stacked.state() | population.state()).items()}
    span = population.span(1)

    after = stacked.state() | population.state()
    assert all(torch.equal(after[k][span], before[k][span]) for k in ("mean", "square", "masters"))
    assert after["steps"].tolist() == [2, 1, 2]
    assert not torch.equal(after["masters"][population.span(0)], before["masters"][population.span(0)])


def test_copying_a_place_takes_moments_and_step_count_along(learner):
    learner.population.grads.normal_()
    learner.optimizer.step({0: 1e-2}, {})
    two = StackedAdamW(learner.population)
    two.restore(learner.optimizer.state())
    # Members 0 and 0: copying a place onto itself must change nothing.
    two.copy(0, 0)

    assert all(
        torch.equal(a, b)
        for a, b in zip(two.state().values(), learner.optimizer.state().values(), strict=True)
    )


def test_a_member_whose_gradients_are_no_numbers_is_skipped_and_the_others_step(learner):
    population, optimizer = learner.population, learner.optimizer
    population.grads[:] = 0.5
    population.grads[population.span(2)] = float("nan")
    before = population.masters.clone()
    norms = optimizer.step({0: 1e-3, 2: 1e-3}, {})

    assert norms[2] != norms[2]
    assert population.masters[population.span(2)].equal(before[population.span(2)])
    assert not population.masters[population.span(0)].equal(before[population.span(0)])
    assert (optimizer.steps[0], optimizer.steps[2]) == (1, 0)
    assert not population.grads.any()


def test_gradients_of_which_none_are_numbers_stop_the_run(learner):
    learner.population.grads[:] = float("nan")

    with pytest.raises(DivergedError, match="m0, m2: the gradients are no numbers any more"):
        learner.optimizer.step({0: 1e-3, 2: 1e-3}, {})
