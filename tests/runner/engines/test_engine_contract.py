"""What every engine owes the trainer: these tokens, these logprobs, of this member's newest weights."""

from __future__ import annotations

import pytest
import torch
from populations import shake

from arena_runner import ops, seeds
from arena_runner.adapters import OFF
from arena_runner.engines.base import Request
from arena_runner.engines.torch import TorchEngine
from arena_runner.packing import Group, pack

PROMPTS = [(5, 6, 7), (8,), (9, 10, 11, 12, 13, 14)]
MEMBERS = (0, 1, 2, None)


def wanted(*, greedy=False, new=10, seed=1):
    """Every member and the base, two completions of every prompt, each at its own temperature."""
    return [
        Request(
            m, p, new + c, seeds.row_key(seed, 9 if m is None else m, 0, k, c), 0.7 + 0.2 * k, greedy=greedy
        )
        for m in MEMBERS
        for k, p in enumerate(PROMPTS)
        for c in range(1 if greedy else 2)
    ]


@torch.no_grad()
def trainers_logprobs(learner, request, token_ids):
    member = OFF if request.member is None else request.member
    (piece,) = pack([Group(member, request.prompt_ids, (tuple(token_ids),), (0,))], 1000)
    heat = 1.0 if request.greedy else request.temperature
    return ops.logprobs(learner.base, learner.population, piece, torch.full((len(token_ids),), heat))


def test_completions_come_in_order_each_reported_once_and_end_where_they_must(learner, engine):
    told = {}
    asked = wanted()
    done = engine.generate(asked, told.setdefault)

    assert [told[i] for i in range(len(asked))] == done
    for request, c in zip(asked, done, strict=True):
        ended = c.token_ids[-1] in learner.base.eos_ids
        assert c.finished_by == ("eos" if ended else "length")
        assert ended or len(c.token_ids) == request.max_new_tokens
        assert not learner.base.eos_ids & set(c.token_ids[:-1])


@pytest.mark.parametrize("greedy", [False, True])
def test_recorded_logprobs_are_the_trainers_at_the_sampling_temperature(learner, engine, greedy):
    asked = wanted(greedy=greedy)
    for request, c in zip(asked, engine.generate(asked), strict=True):
        mine = trainers_logprobs(learner, request, c.token_ids)
        assert (mine - torch.tensor(c.logprobs)).abs().max() <= 1e-3


def test_greedy_completions_are_the_torch_engines_up_to_a_near_tie(learner, engine):
    asked = wanted(greedy=True, new=16)
    reference = TorchEngine(learner.base, learner.population).generate(asked)
    for request, ours, theirs in zip(asked, reference, engine.generate(asked), strict=True):
        for at, (a, b) in enumerate(zip(ours.token_ids, theirs.token_ids, strict=False)):
            if a != b:
                assert top_two_gap(learner, request, ours.token_ids[:at]) < 1e-4
                break


@torch.no_grad()
def top_two_gap(learner, request, before):
    ids = torch.tensor([[*request.prompt_ids, *before]])
    member = OFF if request.member is None else request.member
    rows = learner.population.rows(torch.full((ids.shape[1],), member))
    hidden = learner.base.body(input_ids=ids, use_cache=False, arena_rows=rows).last_hidden_state[0, -1]
    top = learner.base.head(hidden).log_softmax(-1).topk(2).values
    return float(top[0] - top[1])


def test_a_key_is_a_stream_of_its_own(engine):
    first, again, other = (engine.generate(wanted(seed=s)) for s in (1, 1, 2))

    assert [c.token_ids for c in first] == [c.token_ids for c in again]
    assert [c.token_ids for c in first] != [c.token_ids for c in other]


def test_members_and_base_answer_differently(engine):
    answers = engine.generate([Request(m, PROMPTS[2], 12, greedy=True) for m in MEMBERS])

    assert len({(c.token_ids, c.logprobs) for c in answers}) == len(MEMBERS)


@pytest.mark.parametrize("size", [0.1, 1e-3])
def test_the_next_completion_is_of_the_newest_weights(learner, engine, size):
    """A large step and one near the size of a real optimizer step; the other members stay what they were."""
    asked = [Request(m, PROMPTS[2], 12, greedy=True) for m in MEMBERS]
    before = engine.generate(asked)
    moved = learner.population.masters[learner.population.span(1)]
    moved += size * torch.randn(moved.shape, generator=torch.Generator().manual_seed(3))
    learner.population.sync()
    after = engine.generate(asked)

    assert after[1].logprobs != before[1].logprobs
    assert (
        trainers_logprobs(learner, asked[1], after[1].token_ids) - torch.tensor(after[1].logprobs)
    ).abs().max() <= (1e-3 if size > 0.01 else 1e-4)
    assert [after[i].token_ids for i in (0, 2, 3)] == [before[i].token_ids for i in (0, 2, 3)]


def test_nothing_is_asked_for_nothing(engine):
    assert engine.generate([]) == []


def test_a_shaken_population_is_still_told_apart(learner, engine):
    """Every member's weights change at once, as after an evolution."""
    shake(learner.population, 0.1, seed=7)
    asked = wanted(greedy=True)
    for request, c in zip(asked, engine.generate(asked), strict=True):
        assert (
            trainers_logprobs(learner, request, c.token_ids) - torch.tensor(c.logprobs)
        ).abs().max() <= 1e-3
