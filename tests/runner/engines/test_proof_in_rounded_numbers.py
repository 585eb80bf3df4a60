"""The path half where numbers are rounded: chance is asked again, a fault is a fault every time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from populations import make_learner

from arena_runner.engines import identity, torch_proof
from arena_runner.engines.identity import Noise, probe_layers
from arena_runner.engines.reading import PolicyMismatchError
from arena_runner.engines.torch import TorchEngine
from arena_runner.lora import AdaptedLinear

ROUNDED = Noise(mean=0.03, square=0.05)
SITE = "model.layers.1.mlp.down_proj"


class Unlucky:
    """An engine whose first adapter of a batch shows a part of its effect only, the first `times` times."""

    def __init__(self, places, times):
        self.places, self.times = places, times
        self.load, self.unload, self.shapes = places.load, places.unload, places.shapes
        self.prompts = []

    def sample(self, asked, new_tokens):
        done = self.places.sample(asked, new_tokens)
        if asked[0][0] is None or self.times == 0:
            return done
        self.times -= 1
        self.prompts.append(asked[0][1])
        off = tuple(logprob + 5.0 for logprob in done[0].logprobs)
        return [replace(done[0], logprobs=off), *done[1:]]


@pytest.fixture
def unlucky(learner):
    """`unlucky(times)`, with probes that lie in the places of a learner's population."""
    engine = TorchEngine(learner.base, learner.population)
    places = torch_proof._Places(learner.population, engine)
    with torch_proof._borrowed(learner.population, len(places.shapes)):
        yield lambda times: Unlucky(places, times)


def test_what_looks_wrong_by_chance_is_asked_again_with_another_prompt(learner, unlucky):
    subject = unlucky(2)
    found = dict(probe_layers(learner.base, subject, [SITE], ROUNDED))

    assert found[SITE] == pytest.approx(1, abs=identity.GAIN)
    assert len(set(subject.prompts)) == 2


def test_what_looks_wrong_every_time_is_refused(learner, unlucky):
    with pytest.raises(PolicyMismatchError, match=f"{SITE} alone is not served as it should be"):
        list(probe_layers(learner.base, unlucky(identity.LOOKS), [SITE], ROUNDED))


@pytest.mark.parametrize("deaf", [False, True], ids=["all is well", "one layer left out"])
def test_in_bfloat16_a_layer_left_out_is_found_and_nothing_else(learner, monkeypatch, deaf):
    rounded = make_learner(learner.base.ref, ranks=(2, 2), alphas=(4, 4), dtype=torch.bfloat16)
    engine, forward = TorchEngine(rounded.base, rounded.population), AdaptedLinear.forward
    left_out = id(rounded.population._modules[SITE])

    def bypass(self, x):
        return (
            self.base(x) if torch.is_inference_mode_enabled() and id(self) == left_out else forward(self, x)
        )

    if deaf:
        monkeypatch.setattr(AdaptedLinear, "forward", bypass)
        with pytest.raises(PolicyMismatchError, match=f"{SITE} alone"):
            torch_proof.prove(rounded.base, rounded.population, engine)
    else:
        assert abs(torch_proof.prove(rounded.base, rounded.population, engine).worst - 1) <= identity.GAIN
