"""The GRPO update against a plain reference: peft's own model, one completion at a time."""

from dataclasses import replace

import peft
import pytest
import torch
from populations import make_learner, purely_in_float64, relative, scored_groups

from arena_runner import ops
from arena_runner.algorithms import grpo
from arena_runner.algorithms.grpo import Advantage, GrpoSettings, Kl, Level, Normalisation, Surrogate
from arena_runner.engines.base import Completion
from arena_runner.models import load_base
from arena_runner.policy_batch import ScoredGroup

SETTINGS = {
    "grpo": GrpoSettings(lr=1e-3, beta=0.04, temperature=0.9),
    "token mean": GrpoSettings(lr=1e-3, normalisation=Normalisation.TOKEN, clip_high=0.28),
    "constant": GrpoSettings(
        lr=1e-3, normalisation=Normalisation.CONSTANT, advantage=Advantage.MEAN_ONLY, max_completion_tokens=12
    ),
    "k2": GrpoSettings(lr=1e-3, beta=0.5, kl=Kl.K2),
    "k1 in the reward": GrpoSettings(lr=1e-3, beta=0.5, kl=Kl.K1_REWARD),
    "sequence": GrpoSettings(lr=1e-3, level=Level.SEQUENCE, clip_low=3e-4, clip_high=4e-4),
    "cispo": GrpoSettings(
        lr=1e-3, surrogate=Surrogate.CISPO, clip_high=1.5, normalisation=Normalisation.TOKEN, beta=0.1
    ),
    "untruncated": GrpoSettings(lr=1e-3, importance_cap=50.0),
    "no importance weights": GrpoSettings(lr=1e-3, importance_cap=None),
}


def token_logprobs(model, prompt, tokens, temperature):
    ids = torch.tensor([[*prompt, *tokens]])
    logits = model(ids).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]


def completion_loss(policy, group, i, s, moved):
    """Straight from training.md section 6, for one completion; `moved` is how far the policy is from the old one."""
    completion = group.completions[i]
    now = token_logprobs(policy, group.prompt_ids, completion.token_ids, s.temperature)
    with policy.disable_adapter(), torch.no_grad():
        reference = token_logprobs(policy, group.prompt_ids, completion.token_ids, s.temperature)
    scored = torch.tensor([r for r in group.rewards if r is not None], dtype=torch.float64)
    advantage = group.rewards[i] - scored.mean()
    if s.advantage is Advantage.MEAN_STD:
        advantage = advantage / (scored.std() + 1e-4)
    old = now.detach() - moved
    w = (old - torch.tensor(completion.logprobs, dtype=torch.float64)).exp()
    w = torch.ones_like(w) if s.importance_cap is None else w.clamp(max=s.importance_cap)
    ratio = (now - old).exp()
    d = now - reference
    kl = {Kl.K3_IS: ratio * ((-d).exp() + d - 1), Kl.K2: ratio.detach() * d**2 / 2, Kl.K1_REWARD: 0 * d}[s.kl]
    if s.kl is Kl.K1_REWARD:
        advantage = advantage - s.beta * d.detach()
    if s.level is Level.SEQUENCE:
        ratio = (now - old).mean().exp() * torch.ones_like(now)
    if s.surrogate is Surrogate.CISPO:
        policy_term = -ratio.detach().clamp(max=s.clip_high) * advantage * now
    else:
        clipped = ratio.clamp(1 - s.clip_low, 1 + s.clip_high)
        policy_term = -torch.minimum(ratio * advantage, clipped * advantage)
    return w * policy_term + s.beta * kl


def expected_gradients(policy, groups, s, moved=0.0):
    losses = [
        completion_loss(policy, g, i, s, moved)
        for g in groups
        for i in range(len(g.completions))
        if g.rewards[i] is not None
    ]
    lengths = [len(x) for x in losses]
    match s.normalisation:
        case Normalisation.SEQUENCE:
            total = sum(x.mean() for x in losses) / len(losses)
        case Normalisation.TOKEN:
            total = sum(x.sum() for x in losses) / sum(lengths)
        case Normalisation.CONSTANT:
            total = sum(x.sum() for x in losses) / (len(losses) * s.max_completion_tokens)
    total.backward()
    return {n.replace(".default", ""): p.grad for n, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("moved", [0.0, 0.1, -0.3])
@pytest.mark.parametrize("name", SETTINGS)
def test_each_members_gradient_is_the_references(learner, tiny_model_dir, tmp_path, name, moved):
    """`moved`: every token is that much likelier than at the start of the update, as after some of its steps."""
    settings = {0: SETTINGS[name], 1: replace(SETTINGS["grpo"], beta=0.2)}
    groups = scored_groups()
    batch = grpo.prepare(learner, groups, settings)
    if moved:
        start_elsewhere(learner, batch, settings, moved)
    grpo.accumulate(learner, batch, settings, [0, 1])
    population = learner.population
    population.save(0, tmp_path)
    policy = in_peft(tiny_model_dir, tmp_path)
    theirs = expected_gradients(policy, [g for g in groups if g.member == 0], settings[0], moved)

    ours = gradients_by_peft_name(population, 0)
    assert ours.keys() == theirs.keys()
    assert max(relative(ours[k], theirs[k]) for k in ours) <= 1e-5


def start_elsewhere(learner, batch, settings, moved):
    for piece in batch.packs(learner, settings, settings):
        temperature = grpo.Knobs(batch, piece, settings).of("temperature")
        with torch.no_grad():
            batch.old.put(piece, ops.logprobs(learner.base, learner.population, piece, temperature) - moved)


def in_peft(tiny_model_dir, folder):
    """The export is fp32: compare at the weights it holds."""
    model = load_base(str(tiny_model_dir), device="cpu", dtype=torch.float64)
    purely_in_float64(model)
    return peft.PeftModel.from_pretrained(
        model.model, folder, is_trainable=True, autocast_adapter_dtype=False
    ).double()


def gradients_by_peft_name(population, member):
    rows = population.grads[population.span(member)]
    named = {}
    for site in population.sites:
        named[f"base_model.model.{site.name}.lora_A.weight"] = rows[:, site.a]
        named[f"base_model.model.{site.name}.lora_B.weight"] = rows[:, site.b].T
    return named


def test_at_learning_rate_zero_a_second_epoch_has_ratio_one_to_the_bit(learner):
    settings = {m: GrpoSettings(lr=0.0, update_epochs=3, beta=0.1) for m in (0, 1)}
    done = grpo.update(learner, scored_groups(), settings)

    assert [done[m].metrics["ratio_mean"] for m in (0, 1)] == [1.0, 1.0]
    assert [done[m].metrics["clip_fraction"] for m in (0, 1)] == [0.0, 0.0]


def test_clipping_acts_on_the_second_step_of_a_batch(tiny_model_dir):
    """With one step per batch the ratio is one, so clip_coef can only matter from the second on."""

    def trained(clip, epochs):
        learner = make_learner(tiny_model_dir)
        settings = {0: GrpoSettings(lr=0.05, clip_low=clip, clip_high=clip, update_epochs=epochs)}
        groups = [g for g in scored_groups() if g.member == 0]
        return grpo.update(learner, groups, settings)[0], learner.population.masters

    one, two = trained(0.001, 1), trained(0.2, 1)
    assert torch.equal(one[1], two[1])
    one, two = trained(0.001, 2), trained(0.2, 2)
    assert not torch.equal(one[1], two[1])
    assert one[0].metrics["clip_fraction"] > two[0].metrics["clip_fraction"]


def test_a_member_without_signal_keeps_every_bit_and_says_so(learner):
    same = [replace(g, rewards=(0.5,) * len(g.rewards)) if g.member == 0 else g for g in scored_groups()]
    before = learner.population.masters.clone()
    done = grpo.update(learner, same, {m: GrpoSettings(lr=0.1, beta=0.1) for m in (0, 1)})
    zero, one = learner.population.span(0), learner.population.span(1)

    assert (done[0].signal, done[1].signal) == (False, True)
    assert torch.equal(learner.population.masters[zero], before[zero])
    assert not torch.equal(learner.population.masters[one], before[one])
    assert learner.optimizer.steps == [0, 1, 0]


def test_equal_rewards_are_no_signal_even_where_their_mean_is_rounded():
    assert grpo.advantages([0.1] * 3, Advantage.MEAN_STD) == [0.0] * 3


def test_a_step_makes_good_completions_likelier_and_bad_ones_less_likely(learner):
    def surprise(tokens):
        group = ScoredGroup(0, (5, 6), (Completion(tokens, (0.0,) * len(tokens), "eos"),) * 2, (1.0, 0.0))
        settings = {0: GrpoSettings(lr=0.0)}
        return grpo.accumulate(learner, grpo.prepare(learner, [group], settings), settings, [0])[0]["entropy"]

    good, bad = (9, 10, 2), (20, 21, 2)
    before = surprise(good), surprise(bad)
    learner.population.zero_grad()
    pair = (Completion(good, (-5.0,) * 3, "eos"), Completion(bad, (-5.0,) * 3, "eos"))
    grpo.update(learner, [ScoredGroup(0, (5, 6), pair, (1.0, 0.0))], {0: GrpoSettings(lr=0.01)})

    assert surprise(good) < before[0]
    assert surprise(bad) > before[1]
