"""Mutations of a network that keep what it has learned.

A change of architecture is a new design and, for every parameter that both have, the overlapping block of weights
and moments bit for bit. What is new does not disturb: a new node's outgoing weights are zero, a new layer begins as
the identity. A shrinking node count keeps the nodes that are first. Everything is a function of its seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from arena_gitops.spec.manifest.network import Cnn, Mlp, Simba
from arena_gitops.spec.population import ClassicMutation
from arena_runner.policies import layers
from arena_runner.policies.design import Design
from arena_runner.policies.layers import Slot
from arena_runner.policies.person import Net, Person
from arena_runner.policies.stack import initial, views
from arena_runner.seeds import key, rng

NODES = (16, 32, 64)
CHANNELS = (8, 16, 32)
TOUCHED = 0.1
"""share of the weights that `params_mut` moves"""
MUTABLE_ACTIVATIONS = ("ReLU", "ELU", "GELU", "Tanh", "LeakyReLU")
Change = tuple[Design, str]


def mutated(
    person: Person, twins: Mapping[str, str], kind: str, settings: ClassicMutation, seed: int
) -> tuple[Person, str]:
    """A member after one mutation, and what it was in a few words; twins change as what they follow."""
    dice = rng(seed, "network")
    if kind == "params_mut":
        return _shaken(person, twins, settings, seed)
    role = min(role for role in person if role not in twins)
    change = (
        _act(person[role].design, dice) if kind == "act_mut" else _arch(person[role].design, settings, dice)
    )
    if change is None:
        return person, "nothing could change"
    _, said = change
    after = dict(person)
    for name, net in person.items():
        moved = _same_change(net.design, change[0])
        after[name] = grown(net, moved, key(seed, twins.get(name, name)))
    return after, said


def grown(net: Net, design: Design, seed: int) -> Net:
    """A network in another design: shared blocks are kept, the rest starts without disturbing."""
    if design == net.design:
        return net
    old, new = layers.layout(net.design), layers.layout(design)
    fresh = initial(new, seed).unsqueeze(0)
    _quiet(new, fresh, old)
    _keep(old, net.flat, new, fresh)
    if net.mean is None or net.square is None:
        return Net(design, fresh[0])
    moments = []
    for values in (net.mean, net.square):
        moment = torch.zeros_like(fresh)
        _keep(old, values, new, moment)
        moments.append(moment[0])
    return Net(design, fresh[0], moments[0], moments[1], net.steps)


def _keep(old: tuple[Slot, ...], values: Tensor, new: tuple[Slot, ...], target: Tensor) -> None:
    """Copy the overlapping block of every parameter that both layouts have."""
    had, has = views(old, values.unsqueeze(0)), views(new, target)
    for name in had.keys() & has.keys():
        block = tuple(slice(0, min(a, b)) for a, b in zip(had[name].shape, has[name].shape, strict=True))
        has[name][block] = had[name][block]


def _quiet(slots: tuple[Slot, ...], fresh: Tensor, old: tuple[Slot, ...]) -> None:
    """New incoming rows are zero, so that a new node is not heard yet; a new layer is the identity."""
    known = {slot.name: slot.shape for slot in old}
    for name, view in views(slots, fresh).items():
        before = known.get(name)
        if before is None:
            if name.endswith("weight") and view.dim() == 3:
                silent = name.endswith(("down.weight", "noise_weight"))
                view[0] = 0.0 if silent else torch.eye(*view.shape[1:])
            elif name.endswith("noise_bias"):
                view[0] = 0.0
        elif name.endswith(("weight", "input")) and view.dim() == 3:
            view[0, before[0] :] = 0.0
        elif name.endswith("weight") and view.dim() == 5:
            view[0, :, before[1] :] = 0.0


def _shaken(
    person: Person, twins: Mapping[str, str], settings: ClassicMutation, seed: int
) -> tuple[Person, str]:
    """Add noise to some weights of every trained network, relative to their size."""
    after = dict(person)
    for role, net in person.items():
        if role in twins:
            continue
        draws = torch.Generator().manual_seed(key(seed, role) & ((1 << 63) - 1))
        size = net.flat.shape
        touched = torch.rand(size, generator=draws) < TOUCHED
        noise = torch.randn(size, generator=draws) * settings.mutation_sd
        after[role] = replace(net, flat=torch.where(touched, net.flat * (1 + noise), net.flat))
    return after, f"noise of {settings.mutation_sd:g} on {TOUCHED:.0%} of the weights"


def _act(design: Design, dice: random.Random) -> Change | None:
    """Another activation in encoder and heads."""
    now = getattr(design.encoder, "activation", design.heads[0].hidden.activation)
    others = [name for name in MUTABLE_ACTIVATIONS if name != now]
    new = others[int(dice.random() * len(others))]
    changed: dict[str, Any] = {
        "heads": tuple(
            head.model_copy(update={"hidden": head.hidden.model_copy(update={"activation": new})})
            for head in design.heads
        )
    }
    if hasattr(design.encoder, "activation"):
        changed["encoder"] = design.encoder.model_copy(update={"activation": new})
    return design.model_copy(update=changed), f"{now} → {new}"


def _arch(design: Design, settings: ClassicMutation, dice: random.Random) -> Change | None:
    """A layer (with the chance `new_layer`) or some nodes more or less, in encoder, latent or heads."""
    deeper = dice.random() < settings.probabilities.new_layer
    places = ["encoder", "head"] if deeper else ["encoder", "head", "latent"]
    order = sorted(places, key=lambda _: dice.random())
    grow = dice.random() < 0.5
    for up in (grow, not grow):
        for place in order:
            found = _one(design, place, deeper=deeper, grow=up, dice=dice)
            if found is not None:
                return found
    return None


def _one(design: Design, place: str, *, deeper: bool, grow: bool, dice: random.Random) -> Change | None:
    if place == "latent":
        size = _stepped(
            design.latent_dim, NODES, (design.min_latent_dim, design.max_latent_dim), grow=grow, dice=dice
        )
        if size is None:
            return None
        return design.model_copy(update={"latent_dim": size}), f"latent {design.latent_dim} → {size}"
    section = design.encoder if place == "encoder" else design.heads[0].hidden
    found = _section(section, deeper=deeper, grow=grow, dice=dice)
    if found is None:
        return None
    changed, said = found
    if place == "encoder":
        return design.model_copy(update={"encoder": changed}), f"encoder {said}"
    heads = tuple(_as(head, changed) for head in design.heads)
    return design.model_copy(update={"heads": heads}), f"head {said}"


def _as(head: Any, hidden: Mlp) -> Any:
    """A head with other layers; what is its own (how its output begins) stays."""
    own = head.hidden.output_vanish
    return head.model_copy(update={"hidden": hidden.model_copy(update={"output_vanish": own})})


def _section(section: Any, *, deeper: bool, grow: bool, dice: random.Random) -> tuple[Any, str] | None:
    match section:
        case Mlp():
            return _mlp(section, deeper=deeper, grow=grow, dice=dice)
        case Cnn():
            return None if deeper else _cnn(section, grow=grow, dice=dice)
        case Simba():
            fields = (
                ("num_blocks", "min_blocks", "max_blocks")
                if deeper
                else ("hidden_size", "min_mlp_nodes", "max_mlp_nodes")
            )
        case _:  # a memory and joined parts keep their shape: their blocks would not stay where they are
            return None
    return _field(section, fields, (1,) if deeper else NODES, grow=grow, dice=dice)


def _field(
    section: Any, fields: tuple[str, str, str], steps: tuple[int, ...], *, grow: bool, dice: random.Random
) -> tuple[Any, str] | None:
    name, low, high = fields
    old = getattr(section, name)
    new = _stepped(old, steps, (getattr(section, low), getattr(section, high)), grow=grow, dice=dice)
    if new is None:
        return None
    return section.model_copy(update={name: new}), f"{name} {old} → {new}"


def _mlp(section: Mlp, *, deeper: bool, grow: bool, dice: random.Random) -> tuple[Mlp, str] | None:
    sizes = section.hidden_size
    if deeper:
        count = len(sizes) + (1 if grow else -1)
        if not section.min_hidden_layers <= count <= section.max_hidden_layers:
            return None
        new = (*sizes, sizes[-1]) if grow else sizes[:-1]
    else:
        at = int(dice.random() * len(sizes))
        size = _stepped(
            sizes[at], NODES, (section.min_mlp_nodes, section.max_mlp_nodes), grow=grow, dice=dice
        )
        if size is None:
            return None
        new = (*sizes[:at], size, *sizes[at + 1 :])
    return section.model_copy(update={"hidden_size": new}), f"{list(sizes)} → {list(new)}"


def _cnn(section: Cnn, *, grow: bool, dice: random.Random) -> tuple[Cnn, str] | None:
    """Channels more or less; the pictures' sizes stay as they are."""
    sizes = section.channel_size
    at = int(dice.random() * len(sizes))
    size = _stepped(
        sizes[at], CHANNELS, (section.min_channel_size, section.max_channel_size), grow=grow, dice=dice
    )
    if size is None:
        return None
    new = (*sizes[:at], size, *sizes[at + 1 :])
    return section.model_copy(update={"channel_size": new}), f"channels {list(sizes)} → {list(new)}"


def _stepped(
    old: int, steps: tuple[int, ...], span: tuple[int, int], *, grow: bool, dice: random.Random
) -> int | None:
    """A drawn step up or down within the range; None when it cannot move."""
    step = steps[int(dice.random() * len(steps))]
    low, high = span
    new = min(max(old + (step if grow else -step), low), high)
    return None if new == old or (new > old) != grow else new


def _same_change(own: Design, changed: Design) -> Design:
    """The design of a member's other network after the same change: body from the change, heads its own."""
    hidden = changed.heads[0].hidden
    return own.model_copy(
        update={
            "encoder": changed.encoder if own.encoder.arch == changed.encoder.arch else own.encoder,
            "latent_dim": changed.latent_dim,
            "heads": tuple(_as(head, hidden) for head in own.heads),
        }
    )
