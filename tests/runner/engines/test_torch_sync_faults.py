"""Eleven faults of a sync inside this process, made below what the proof reads: none is sampled from."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from movements import SIZES, move
from populations import make_learner

from arena_runner.adapters import Population
from arena_runner.engines import kv, torch_proof
from arena_runner.engines.base import Request
from arena_runner.engines.reading import PolicyMismatchError
from arena_runner.engines.torch import TorchEngine
from arena_runner.lora import AdaptedLinear

ASKED = [Request(1, (5, 6, 7), 4, greedy=True)]
SITE = "model.layers.1.mlp.down_proj"


@pytest.fixture
def engine(learner):
    yield TorchEngine(learner.base, learner.population)
    learner.population.sync()


def rows_of(change):
    """`Population.rows` that hands out something else for member 1."""

    def broken(self, members, *, dropout=None):
        mine = rows(self, members, dropout=dropout)
        return change(self, mine) if mine is not None and bool((members == 1).any()) else mine

    rows = Population.rows
    return broken


def stretched(_population, rows):
    return replace(rows, gate=rows.gate * 2)


def another(population, rows):
    """Member 0's place, of the rank that was asked for."""
    start = population.span(0).start
    return replace(rows, span=slice(start, start + rows.span.stop - rows.span.start))


IN_THE_MAP = {
    "adapter not loaded": lambda _population, _rows: None,
    "wrong alpha": stretched,
    "wrong member": another,
}


def each(population):
    span = population.span(1)
    for name, module in population._modules.items():
        yield name, module.a.rounded[span], module.b.rounded[span]


def base_served(population):
    for _, a, b in each(population):
        a.zero_()
        b.zero_()


def one_module_missing(population):
    for name, _, b in each(population):
        if name == SITE:
            b.zero_()


def transposed(population):
    for _, a, _ in each(population):
        a.copy_(a.T.reshape(a.shape).clone())


def half_loaded(population):
    for name, _, b in each(population):
        if ".layers.0." in name:
            b.zero_()


def dtype(population):
    for _, a, b in each(population):
        a.copy_(a.bfloat16())
        b.copy_(b.bfloat16())


IN_THE_LAYERS = [base_served, one_module_missing, transposed, half_loaded, dtype]


def refused(match="under m1"):
    return pytest.raises(PolicyMismatchError, match=match)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fault", IN_THE_MAP)
def test_rows_that_lead_elsewhere_are_found(learner, engine, fault, size, monkeypatch):
    move(learner.population, 1, size)
    monkeypatch.setattr(Population, "rows", rows_of(IN_THE_MAP[fault]))

    with refused():
        engine.generate(ASKED)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fault", IN_THE_LAYERS)
def test_what_lies_wrong_in_the_layers_is_found(learner, engine, fault, size):
    move(learner.population, 1, size)
    fault(learner.population)

    with refused():
        engine.generate(ASKED)


@pytest.mark.parametrize("size", SIZES)
def test_weights_of_the_step_before_are_found(learner, engine, size, monkeypatch):
    """Wrong step: an update that nobody handed on."""
    monkeypatch.setattr(Population, "sync", lambda _self: None)
    move(learner.population, 1, size)

    with refused():
        engine.generate(ASKED)


@pytest.mark.parametrize("size", SIZES)
def test_a_place_that_still_serves_whom_it_was_before_evolution_is_found(learner, size, monkeypatch):
    """Alias not moved: m1 was overwritten by m0, the layers still have the old m1."""
    alike = make_learner(learner.base.ref, ranks=(2, 2), alphas=(4, 4), dtype=torch.float32)
    move(alike.population, 1, size)
    monkeypatch.setattr(Population, "sync", lambda _self: None)
    alike.population.copy(0, 1)

    with refused():
        TorchEngine(alike.base, alike.population).generate(ASKED)


def test_keys_of_an_earlier_adapter_that_are_used_again_are_found_by_the_path_half(
    learner, engine, monkeypatch
):
    """Stale cache: keys and values of a prompt are kept over a sync."""
    seen, attend = {}, kv.Prefill.attend

    def stale(self, layer, heads):
        key = (layer, *heads.k.shape)
        k, v = seen.setdefault(key, (heads.k.clone(), heads.v.clone()))
        return attend(self, layer, heads._replace(k=k, v=v))

    monkeypatch.setattr(kv.Prefill, "attend", stale)
    with refused("nats per token"):
        torch_proof.prove(learner.base, learner.population, engine)


@pytest.mark.parametrize("layer", [SITE, ""])
def test_a_layer_that_samples_without_its_adapter_is_found_by_the_path_half(
    learner, engine, layer, monkeypatch
):
    """The right weights lie there; sampling does not look at them, in one layer, or in all: the base served."""
    forward = AdaptedLinear.forward
    deaf = {id(m) for n, m in learner.population._modules.items() if n.endswith(layer)}

    def bypass(self, x):
        return self.base(x) if torch.is_inference_mode_enabled() and id(self) in deaf else forward(self, x)

    monkeypatch.setattr(AdaptedLinear, "forward", bypass)
    with refused("alone is not served as it should be"):
        torch_proof.prove(learner.base, learner.population, engine)


def test_the_path_half_leaves_the_population_as_it_was(learner, engine):
    before = learner.population.masters.clone()
    path = torch_proof.prove(learner.base, learner.population, engine)

    assert learner.population.masters.equal(before)
    assert path.worst == pytest.approx(1, abs=0.01)
    assert (path.modules, path.blind) == (len(learner.population.sites), ())


def test_layers_share_adapters_and_adapters_a_batch(learner, engine):
    class Counted:
        batches = 0

        def generate(self, requests):
            self.batches += 1
            return engine.generate(requests)

    counted = Counted()
    torch_proof.prove(learner.base, learner.population, counted)

    assert len(learner.population.sites) > 2 * learner.population.members
    assert counted.batches == 2  # one of them of the bare base model
