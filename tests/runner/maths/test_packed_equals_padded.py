"""One packed update is the plain padded update, whatever the shapes, the members and the micro-batches."""

from dataclasses import replace

import pytest
import torch
from populations import make_learner, relative, scored_groups, shake

from arena_runner import ops
from arena_runner.adapters import AdapterError, Population
from arena_runner.algorithms import grpo
from arena_runner.algorithms.grpo import GrpoSettings, Kl
from arena_runner.learner import Learner
from arena_runner.models import load_base
from arena_runner.optim import StackedAdamW
from arena_runner.packing import Group, pack

SETTINGS = {
    0: GrpoSettings(lr=1e-3, beta=0.04, temperature=0.9),
    1: GrpoSettings(lr=1e-3, beta=0.01, temperature=1.1, kl=Kl.K3),
}


def gradients(learner, *, packs=True, tokens=None, settings=SETTINGS):
    learner = replace(learner, base=replace(learner.base, packs=packs), tokens_per_backward=tokens or 10_000)
    learner.population.zero_grad()
    batch = grpo.prepare(learner, scored_groups(), settings)
    grpo.accumulate(learner, batch, settings, [0, 1])
    return learner.population.grads.clone()


def test_gradients_are_equal_to_1e_9_in_float64(learner):
    packed, padded = gradients(learner), gradients(learner, packs=False)

    assert all(padded[learner.population.span(m)].norm() > 0 for m in (0, 1))
    assert relative(packed, padded) <= 1e-9


@pytest.mark.parametrize("tokens", [1, 12, 30, 60])
def test_micro_batches_change_no_gradient(learner, tokens):
    assert relative(gradients(learner, tokens=tokens), gradients(learner)) <= 1e-9


def test_a_recomputed_forward_sees_the_rows_it_saw_first(learner):
    """The member index travels with the call: two packs of different members, recomputed in their backward."""
    plain = gradients(learner, tokens=30)
    learner.population.checkpointing(on=True)

    assert relative(gradients(learner, tokens=30), plain) <= 1e-12


GEMMA3 = {
    "sliding_window": 5,
    "query_pre_attn_scalar": 8,
    "layer_types": ["sliding_attention", "full_attention"],
}
QWEN3_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


@pytest.mark.parametrize(
    ("arch", "changes", "tolerance"),
    [
        ("llama", {}, 1e-9),
        ("qwen2", {}, 1e-9),  # biases
        ("mistral", {"sliding_window": 5}, 1e-9),  # counts in position ids
        ("qwen3", {}, 1e-6),  # norms of queries and keys, which transformers computes in fp32
        ("gemma3_text", GEMMA3, 1e-6),  # layers with and without a window
    ],
)
def test_architectures_take_the_packed_path_and_agree(tiny_model_of, arch, changes, tolerance):
    learner = make_learner(tiny_model_of(arch, **changes))
    packed = gradients(learner)

    assert learner.base.paths.packed_share() == 1.0
    assert relative(packed, gradients(learner, packs=False)) <= tolerance


def test_a_mixture_of_experts_packs_its_attention(tiny_model_of):
    base = load_base(str(tiny_model_of("qwen3_moe", **QWEN3_MOE)), device="cpu", dtype=torch.float32)
    population = Population.attach(base, targets="all-linear", ranks=[2, 5], alphas=[4, 5])
    shake(population)
    learner = Learner(base, population, StackedAdamW(population))
    packed = gradients(learner)

    assert {site.name.rpartition(".")[2] for site in population.sites} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
    }
    assert base.paths.packed_share() == 1.0
    assert relative(packed, gradients(learner, packs=False)) <= 1e-5


@pytest.mark.parametrize("name", ["experts", "gate_up_proj"])
def test_expert_tensors_are_refused_by_name(tiny_model_of, name):
    base = load_base(str(tiny_model_of("qwen3_moe", **QWEN3_MOE)), device="cpu", dtype=torch.float32)

    with pytest.raises(AdapterError, match=f"{name}: expert tensors"):
        Population.attach(base, targets=["q_proj", name], ranks=[2], alphas=[4])


def test_an_architecture_with_softcap_takes_the_padded_path(tiny_model_of):
    folder = tiny_model_of("gemma2", final_logit_softcapping=None, query_pre_attn_scalar=8)
    learner = make_learner(folder)

    gradients(learner, packs=learner.base.packs)
    assert learner.base.paths.packed_share() == 0.0
    # Its norms compute in fp32; other micro-batches mean other padding.
    assert relative(gradients(learner, packs=False, tokens=12), gradients(learner, packs=False)) <= 1e-5


def test_two_attention_calls_equal_one_dense_mask(learner):
    group = Group(1, (5, 6, 7, 8), ((9, 10, 11), (12,), (13, 14)), (0, 1, 2))
    (piece,) = pack([group], 100)
    owner = [0, 0, 0, 0, 1, 1, 3]  # 0: prompt; the completion of each fed token
    visible = torch.tensor([[j <= i and owner[j] in {0, owner[i]} for j in range(7)] for i in range(7)])
    rows = learner.population.rows(piece.members)
    hidden = learner.base.body(
        input_ids=piece.input_ids[None],
        position_ids=piece.position_ids[None],
        attention_mask=visible[None, None],
        use_cache=False,
        arena_rows=rows,
    ).last_hidden_state[0, piece.source]
    dense = learner.base.head(hidden).log_softmax(-1).gather(1, piece.targets[:, None])[:, 0]

    packed = ops.logprobs(learner.base, learner.population, piece, torch.ones(6))
    assert (packed - dense).abs().max() <= 1e-12


@pytest.mark.slow
def test_gradients_are_equal_to_2e_5_in_fp32_on_smollm2(smollm2_dir):
    base = load_base(str(smollm2_dir), device="cpu", dtype=torch.float32)
    population = Population.attach(base, targets=["q_proj", "v_proj"], ranks=[4, 8], alphas=[8, 8])
    shake(population, 0.01)
    learner = Learner(base, population, StackedAdamW(population))

    assert relative(gradients(learner), gradients(learner, packs=False)) <= 2e-5
