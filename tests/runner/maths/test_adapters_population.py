"""Adapters of a population behave as each would alone, and as peft's would."""

import peft
import pytest
import torch
from populations import TARGETS, make_learner, relative
from transformers import AutoModelForCausalLM

from arena_runner import ops, peft_format
from arena_runner.adapters import OFF, AdapterError, Population
from arena_runner.models import load_base
from arena_runner.packing import Group, pack
from arena_runner.peft_format import AdapterFormatError

COMPLETIONS = ((9, 10, 11), (12,), (13, 14))


def packed(*members):
    groups = [Group(m, (5, 6, 7), COMPLETIONS, (3 * i, 3 * i + 1, 3 * i + 2)) for i, m in enumerate(members)]
    (piece,) = pack(groups, 1000)
    return piece


def logprobs(learner, *members, **options):
    piece = packed(*members)
    return ops.logprobs(learner.base, learner.population, piece, torch.ones(len(piece.targets)), **options)


@pytest.fixture
def single(tiny_model_dir):
    """The same population in fp32, the precision people train in on a CPU without bf16."""
    return make_learner(tiny_model_dir, dtype=torch.float32)


def test_a_fresh_adapter_is_the_base_exactly(tiny_model_dir):
    base = load_base(str(tiny_model_dir), device="cpu", dtype=torch.float32)
    bare = ops.logprobs(base, None, packed(0), torch.ones(6))
    population = Population.attach(base, ranks=[2, 7], alphas=[4, 4])

    fresh = ops.logprobs(base, population, packed(1), torch.ones(6))
    assert torch.equal(fresh, bare)


def test_members_together_are_each_alone_to_1e_5(single):
    together = logprobs(single, 2, 0, OFF, 1).split(6)
    alone = [logprobs(single, m) for m in (2, 0, OFF, 1)]

    assert all((a - b).abs().max() <= 1e-5 for a, b in zip(together, alone, strict=True))
    assert (alone[0] - alone[1]).abs().max() > 1e-3


def test_gradients_reach_their_own_member_only(learner):
    logprobs(learner, 1).sum().backward()
    norms = [float(learner.population.grads[learner.population.span(m)].norm()) for m in range(3)]

    assert norms[0] == norms[2] == 0 < norms[1]


def test_adapters_of_two_dtypes_read_one_rounded_copy(tiny_model_dir):
    learner = make_learner(tiny_model_dir, dtype=torch.bfloat16)
    site = learner.population.sites[0]
    module = learner.base.model.get_submodule(site.name)

    assert learner.population.masters.dtype == torch.float32
    assert torch.equal(module.b.rounded, learner.population.masters[:, site.b].bfloat16())


@pytest.mark.parametrize("member", [0, 1])
def test_peft_loads_an_export_and_computes_the_same(single, tiny_model_dir, tmp_path, member):
    single.population.save(member, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(model, tmp_path).eval()
    ids = torch.tensor([[5, 6, 7, 9, 10, 11]])
    expected = theirs(ids).logits[0, 2:5].log_softmax(-1).gather(1, ids[0, 3:, None])[:, 0]

    assert (logprobs(single, member)[:3] - expected).abs().max() <= 1e-5


def test_an_adapter_of_peft_is_read_back(single, tiny_model_dir, tmp_path):
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=list(TARGETS), init_lora_weights=False)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    theirs = peft.get_peft_model(model, config)
    theirs.save_pretrained(tmp_path)
    tensors, read = peft_format.read(tmp_path)
    single.population.load(0, tensors)
    ids = torch.tensor([[5, 6, 7, 9]])
    expected = theirs.eval()(ids).logits[0, 2].log_softmax(-1)[9]

    assert (read.rank, read.alpha, read.targets) == (2, 4.0, tuple(sorted(TARGETS)))
    assert (logprobs(single, 0)[0] - expected).abs() <= 1e-5


def test_export_then_load_into_another_place_of_the_same_rank_is_a_copy(tiny_model_dir):
    population = make_learner(tiny_model_dir, ranks=[3, 3], alphas=[6, 6], dtype=torch.float32).population
    before = population.digest(1)
    population.load(1, population.export(0))

    assert population.digest(1) == population.digest(0) != before


def test_copy_between_places_copies_the_policy(tiny_model_dir):
    learner = make_learner(tiny_model_dir, ranks=[3, 3], alphas=[6, 6], dtype=torch.float32)
    learner.population.copy(0, 1)

    assert torch.equal(logprobs(learner, 1), logprobs(learner, 0))


def test_copy_between_places_of_different_rank_is_refused(learner):
    with pytest.raises(AdapterError, match="differ in rank"):
        learner.population.copy(0, 1)


def test_state_restores_bit_for_bit(tiny_model_dir, learner):
    saved = learner.population.state()
    learner.population.detach()
    other = make_learner(tiny_model_dir, seed=5)
    other.population.restore(saved)

    assert [other.population.digest(m) for m in range(3)] == [learner.population.digest(m) for m in range(3)]


def test_the_reference_is_the_base_for_a_fresh_start(learner):
    assert torch.equal(logprobs(learner, 1, reference=True), logprobs(learner, OFF))


def test_the_reference_is_the_starting_adapter_of_a_chained_experiment(tiny_model_dir):
    first = make_learner(tiny_model_dir, ranks=[3], alphas=[6])
    start, expected = first.population.export(0), logprobs(first, 0)
    base = first.population.detach()
    population = Population.attach(base, targets=TARGETS, ranks=[3, 3], alphas=[6, 6], reference=start)
    piece = packed(0, 1)
    begun = ops.logprobs(base, population, piece, torch.ones(12))
    population.masters[population.span(0)] += 0.1
    population.sync()
    reference = ops.logprobs(base, population, piece, torch.ones(12), reference=True)

    assert population.members == 2
    # Exports are fp32; the tiny model here is float64.
    assert relative(begun, expected.repeat(2)) <= 1e-6
    assert relative(reference, begun) <= 1e-12


def test_detach_gives_the_base_back(tiny_model_dir):
    base = load_base(str(tiny_model_dir), device="cpu", dtype=torch.float32)
    before = [name for name, _ in base.model.named_modules()]
    Population.attach(base, ranks=[2], alphas=[2]).detach()

    assert [name for name, _ in base.model.named_modules()] == before


def test_an_unknown_target_names_what_there_is(tiny_model_dir):
    base = load_base(str(tiny_model_dir), device="cpu")

    with pytest.raises(AdapterError, match=r"target_modules wq: .* has down_proj, gate_proj, k_proj"):
        Population.attach(base, targets=["q_proj", "wq"], ranks=[2], alphas=[2])


def test_tensors_of_another_rank_are_refused_by_name(learner):
    with pytest.raises(
        AdapterFormatError, match=r"down_proj.lora_A.weight: expected \(5, 64\), found \(2, 64\)"
    ):
        learner.population.load(1, learner.population.export(0))
