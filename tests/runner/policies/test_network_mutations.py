"""Mutations of a network: what was learned stays, moments follow, twins follow, ranges hold."""

from __future__ import annotations

import pytest
import torch
from playground import crew_of, drawn

from arena_gitops.spec.manifest.network import Mlp
from arena_gitops.spec.population import ClassicMutation
from arena_runner.algorithms import dqn
from arena_runner.policies import layers
from arena_runner.policies.change import grown, mutated
from arena_runner.policies.stack import Stack, views

TWINS = dqn.TWINS


def settings(**odds):
    return ClassicMutation.model_validate({"probabilities": odds, "mutation_sd": 0.1})


def trained(**sections):
    """A crew whose networks and moments are no longer those of the start."""
    crew = crew_of("DQN", 2, **sections)
    stack = crew.groups[0].nets["q"]
    for step in range(3):
        loss = (stack({"obs": drawn(2, 8, 4, seed=step)}) - 1).square().sum()
        stack.minimise(loss, torch.full((2,), 1e-2))
    return crew


def named(net, values):
    return {n: v[0] for n, v in views(layers.layout(net.design), values.unsqueeze(0)).items()}


def answers(net, seen):
    with torch.no_grad():
        return Stack(net.design, net.flat.unsqueeze(0), trained=False)({"obs": seen})


def wider(design, *, encoder=(16,), latent=16, head=(16,)):
    """The design with these sizes."""
    hidden = design.heads[0].hidden.model_copy(update={"hidden_size": head})
    heads = (design.heads[0].model_copy(update={"hidden": hidden}),)
    return design.model_copy(
        update={
            "encoder": design.encoder.model_copy(update={"hidden_size": encoder}),
            "latent_dim": latent,
            "heads": heads,
        }
    )


PLAIN = {
    "network": {
        "latent_dim": 16,
        "encoder_config": {"hidden_size": [16], "layer_norm": False},
        "head_config": {"hidden_size": [16], "layer_norm": False},
    }
}


@pytest.mark.parametrize(
    "sizes",
    [
        {"encoder": (32,)},
        {"latent": 48},
        {"head": (24,)},
        {"encoder": (16, 16)},
        {"head": (16, 16)},
    ],
)
def test_growing_changes_no_answer(sizes):
    """Without layer norm exactly: new nodes are not heard yet, a new layer is the identity."""
    net = trained(**PLAIN).person(0)["q"]
    seen = drawn(1, 20, 4, seed=8)

    larger = grown(net, wider(net.design, **sizes), seed=5)

    assert larger.flat.shape > net.flat.shape
    assert torch.allclose(answers(larger, seen), answers(net, seen), atol=1e-5)


@pytest.mark.parametrize("sizes", [{"encoder": (40,)}, {"encoder": (8,)}, {"latent": 8}, {"head": (16, 16)}])
def test_blocks_of_weights_and_moments_that_both_have_are_kept_bit_for_bit(sizes):
    net = trained().person(1)["q"]

    other = grown(net, wider(net.design, **sizes), seed=5)

    for field in ("flat", "mean", "square"):
        had, has = (named(one, getattr(one, field)) for one in (net, other))
        for name in had.keys() & has.keys():
            block = tuple(slice(0, min(a, b)) for a, b in zip(had[name].shape, has[name].shape, strict=True))
            assert torch.equal(had[name][block], has[name][block])
    assert torch.equal(net.steps, other.steps)


def test_what_is_new_has_no_moments():
    net = trained().person(0)["q"]

    moments = named(larger := grown(net, wider(net.design, latent=24), seed=5), larger.mean)

    assert moments["encoder.latent.weight"][:, :16].abs().sum() > 0
    assert moments["encoder.latent.weight"][:, 16:].abs().sum() == 0


def test_a_twin_changes_as_what_it_follows():
    person, said = mutated(trained().person(0), TWINS, "arch_mut", settings(new_layer=0.0), 3)

    assert person["q"].design == person["target"].design
    assert "→" in said


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("new_layer", [0.0, 1.0])
def test_an_architecture_stays_in_its_ranges_whatever_is_drawn(seed, new_layer):
    person = trained().person(0)
    for turn in range(6):
        person, _ = mutated(person, TWINS, "arch_mut", settings(new_layer=new_layer), seed * 100 + turn)
        design = person["q"].design
        for section in (design.encoder, design.heads[0].hidden):
            Mlp.model_validate(section.model_dump())
        assert design.min_latent_dim <= design.latent_dim <= design.max_latent_dim
        assert len(person["q"].flat) == len(person["target"].flat) == len(person["q"].mean)


def test_layers_change_by_layers_and_nodes_by_nodes():
    before = trained().person(0)["q"].design
    depths, widths = set(), set()
    for seed in range(20):
        deep, _ = mutated(trained().person(0), TWINS, "arch_mut", settings(new_layer=1.0), seed)
        wide, _ = mutated(trained().person(0), TWINS, "arch_mut", settings(new_layer=0.0), seed)
        depths.add(
            len(deep["q"].design.encoder.hidden_size) + len(deep["q"].design.heads[0].hidden.hidden_size)
        )
        widths.add(
            len(wide["q"].design.encoder.hidden_size) + len(wide["q"].design.heads[0].hidden.hidden_size)
        )

    assert depths == {3}  # one of each is the least there may be
    assert widths == {2}
    assert before.encoder.hidden_size == (16,)


def test_noise_moves_some_weights_a_little_and_no_moment():
    before = trained().person(0)
    after, said = mutated(before, TWINS, "params_mut", settings(), 3)
    moved = (after["q"].flat != before["q"].flat).float().mean().item()
    change = (after["q"].flat / before["q"].flat - 1).nan_to_num().abs()

    assert 0.03 < moved < 0.13
    assert change.max() < 0.6
    assert torch.equal(after["q"].mean, before["q"].mean)
    assert torch.equal(after["target"].flat, before["target"].flat)
    assert "10%" in said


def test_another_activation_keeps_every_weight():
    before = trained().person(0)
    after, said = mutated(before, TWINS, "act_mut", settings(), 3)

    assert after["q"].design.encoder.activation != "ReLU"
    assert said.startswith("ReLU → ")
    assert torch.equal(after["q"].flat, before["q"].flat)


def test_members_of_other_shapes_are_stacked_apart_and_act_as_they_would_alone():
    crew = crew_of("DQN", 4)
    for place, seed in ((1, 1), (3, 2)):
        crew.mutate(place, "arch_mut", seed)
    seen = drawn(4, 5, 4)

    assert sorted(place for group in crew.groups for place in group.places) == [0, 1, 2, 3]
    assert len(crew.groups) >= 2
    for group in crew.groups:
        together = group.nets["q"]({"obs": seen[list(group.places)]})
        for row, place in enumerate(group.places):
            alone = answers(crew.person(place)["q"], seen[place : place + 1])
            assert torch.allclose(together[row], alone[0], atol=1e-6)


def test_a_mutation_is_a_function_of_its_seed():
    first, second = (mutated(trained().person(0), TWINS, "arch_mut", settings(), 9) for _ in range(2))

    assert first[1] == second[1]
    assert torch.equal(first[0]["q"].flat, second[0]["q"].flat)
