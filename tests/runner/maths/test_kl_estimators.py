"""Each KL estimator against the exact gradient, by enumerating a vocabulary of six tokens."""

import pytest
import torch

from arena_runner.algorithms import grpo
from arena_runner.algorithms.grpo import GrpoSettings, Kl, Logprobs
from arena_runner.packing import Group, pack
from arena_runner.policy_batch import PolicyBatch, RowStore, Sums

V = 6
GENERATOR = torch.Generator().manual_seed(3)
THETA, REFERENCE, SHIFT = (torch.randn(V, generator=GENERATOR, dtype=torch.float64) for _ in range(3))


def expected_gradient_of(kl, old_logits):
    """The estimator's gradient, averaged over every token the old policy may draw; advantages are zero."""
    logits = THETA.clone().requires_grad_()
    old = old_logits.log_softmax(-1)
    group = Group(0, (0,), tuple((v,) for v in range(V)), tuple(range(V)))
    (piece,) = pack([group], 100)
    batch = PolicyBatch(
        groups=(group,),
        member=torch.zeros(V, dtype=torch.long),
        advantage=torch.zeros(V, dtype=torch.float64),
        weight=old.exp(),
        behaviour=RowStore(),
    )
    # Clipping is far away: it belongs to the policy term, not to the estimator.
    settings = {0: GrpoSettings(lr=1.0, beta=1.0, kl=kl, clip_low=1e9, clip_high=1e9)}
    logp = Logprobs(logits.log_softmax(-1), old, REFERENCE.log_softmax(-1), old)
    knobs = grpo.Knobs(batch, piece, settings)
    grpo.token_loss(logp, batch, piece, knobs, Sums([0], batch.weight)).backward()
    return logits.grad


def exact_gradient(first, second):
    """The gradient, with respect to THETA, of KL between the two policies."""
    logits = THETA.clone().requires_grad_()
    known = {"theta": logits.log_softmax(-1), "reference": REFERENCE.log_softmax(-1)}
    p, q = known[first], known[second]
    (p.exp() * (p - q)).sum().backward()
    return logits.grad


@pytest.mark.parametrize("old", [THETA, THETA + 0.3 * SHIFT], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("kl", [Kl.K3_IS, Kl.K2, Kl.K1_REWARD])
def test_unbiased_estimators_have_the_gradient_of_kl_to_the_reference(kl, old):
    assert torch.allclose(expected_gradient_of(kl, old), exact_gradient("theta", "reference"), atol=1e-12)


def test_k3_without_the_ratio_has_the_gradient_of_the_opposite_divergence():
    assert torch.allclose(
        expected_gradient_of(Kl.K3, THETA), exact_gradient("reference", "theta"), atol=1e-12
    )
    assert not torch.allclose(
        exact_gradient("reference", "theta"), exact_gradient("theta", "reference"), atol=1e-2
    )
