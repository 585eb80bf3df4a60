"""The fast engine against the slow one, the trainer and transformers."""

from dataclasses import replace

import pytest
import torch
from populations import make_learner

from arena_runner import ops, seeds
from arena_runner.engines.base import Request
from arena_runner.engines.torch import TorchEngine
from arena_runner.engines.uncached import UncachedEngine
from arena_runner.packing import Group, pack

PROMPTS = [(5, 6, 7), (8,), (9, 10, 11, 12, 13, 14), (15, 16)]


def requests(completions=3, new=12, members=(0, 1, 2, None)):
    """Every member on its own prompts, several completions each, one of them greedy."""
    return [
        Request(
            m,
            PROMPTS[p],
            new + c,
            seeds.row_key(1, 9 if m is None else m, 0, p, c),
            0.8 + 0.1 * p,
            greedy=c == 2,
        )
        for m in members
        for p in range(len(PROMPTS))
        for c in range(completions)
    ]


@pytest.fixture
def single(tiny_model_dir):
    return make_learner(tiny_model_dir, dtype=torch.float32)


def engine(learner, rows=64):
    return TorchEngine(learner.base, learner.population, rows_in_flight=rows)


def texts(completions):
    return [(c.token_ids, c.finished_by) for c in completions]


@pytest.mark.parametrize("rows", [64, 5, 1])
def test_it_samples_what_the_uncached_engine_samples(single, rows):
    wanted = requests()
    slow = UncachedEngine(single.base, single.population).generate(wanted)

    assert texts(engine(single, rows).generate(wanted)) == texts(slow)


def test_a_rows_randomness_does_not_depend_on_its_batch_mates(single):
    wanted = requests()
    together = engine(single).generate(wanted)
    alone = [engine(single).generate([r])[0] for r in wanted]

    assert texts(together) == texts(alone)


def test_another_key_gives_another_text(single):
    wanted = [replace(r, greedy=False) for r in requests(completions=1)]
    other = [replace(r, key=r.key ^ 1) for r in wanted]

    assert texts(engine(single).generate(wanted)) != texts(engine(single).generate(other))


def test_recorded_logprobs_are_the_trainers_within_1e_3(single):
    wanted = requests()
    done = engine(single, 7).generate(wanted)
    groups = [
        Group(-1 if r.member is None else r.member, r.prompt_ids, (c.token_ids,), (i,))
        for i, (r, c) in enumerate(zip(wanted, done, strict=True))
    ]
    (piece,) = pack(groups, 10**6)
    temperature = torch.tensor([1.0 if wanted[i].greedy else wanted[i].temperature for i in piece.rows])
    trainer = ops.logprobs(single.base, single.population, piece, temperature)

    assert (trainer - torch.tensor([p for c in done for p in c.logprobs])).abs().max() <= 1e-3


def test_greedy_on_the_base_is_what_transformers_generates(single):
    wanted = [Request(None, PROMPTS[2], 20, greedy=True)]
    model = single.population.detach().model
    theirs = model.generate(
        torch.tensor([PROMPTS[2]]), max_new_tokens=20, do_sample=False, attention_mask=torch.ones(1, 6)
    )

    assert list(TorchEngine(single.base).generate(wanted)[0].token_ids) == theirs[0, 6:].tolist()


def test_nothing_follows_the_end_of_sequence_and_a_truncated_text_says_so(single):
    eos_ids = frozenset(range(0, 259, 5))  # a random model ends soon when a fifth of its tokens end a text
    learner = replace(single, base=replace(single.base, eos_ids=eos_ids))
    done = engine(learner, 5).generate(requests())

    assert {c.finished_by for c in done} == {"eos", "length"}
    for r, c in zip(requests(), done, strict=True):
        ended = [t in eos_ids for t in c.token_ids]
        assert not any(ended[:-1])
        assert ended[-1] == (c.finished_by == "eos")
        assert len(c.token_ids) == r.max_new_tokens or c.finished_by == "eos"


def test_each_completion_is_reported_once_as_it_finishes(single):
    seen = []
    done = engine(single, 5).generate(requests(), lambda i, c: seen.append((i, c)))

    assert sorted(i for i, _ in seen) == list(range(len(done)))
    assert all(done[i] == c for i, c in seen)
    assert [i for i, _ in seen] != sorted(i for i, _ in seen)


def test_one_token_is_enough(single):
    done = engine(single).generate([replace(r, max_new_tokens=1) for r in requests()])

    assert all(len(c.token_ids) == len(c.logprobs) == 1 for c in done)


def test_no_request_is_no_completion(single):
    assert engine(single).generate([]) == []


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("mistral", {"sliding_window": 4}),
        ("qwen2", {}),
        ("gemma2", {"final_logit_softcapping": None, "query_pre_attn_scalar": 8}),
    ],
)
def test_other_architectures_sample_the_same_as_without_a_cache(tiny_model_of, arch, changes):
    learner = make_learner(tiny_model_of(arch, **changes), dtype=torch.float32)
    wanted = requests(completions=2)
    slow = UncachedEngine(learner.base, learner.population).generate(wanted)

    assert texts(engine(learner, 5).generate(wanted)) == texts(slow)


def test_bf16_stays_near_the_trainer(tiny_model_dir):
    learner = make_learner(tiny_model_dir, dtype=torch.bfloat16)
    wanted = requests(members=(0, 1))
    done = engine(learner).generate(wanted)
    groups = [
        Group(r.member, r.prompt_ids, (c.token_ids,), (i,))
        for i, (r, c) in enumerate(zip(wanted, done, strict=True))
    ]
    (piece,) = pack(groups, 10**6)
    temperature = torch.tensor([1.0 if wanted[i].greedy else wanted[i].temperature for i in piece.rows])
    trainer = ops.logprobs(learner.base, learner.population, piece, temperature)

    assert (trainer - torch.tensor([p for c in done for p in c.logprobs])).abs().mean() <= 0.1
