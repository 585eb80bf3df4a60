"""Stacked layers: every weight has a leading axis of members N, every batch is (N, B, …), one product serves all.

Pure functions of named parameters; `layout` lists the parameters a design has, `forward` runs it. Members never mix:
row n of a result depends on row n of the input and of the weights only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from arena_gitops.spec.manifest.network import Cnn, CnnLstm, Lstm, Mlp, MultiInput, Simba
from arena_runner.policies.design import Design, DesignError, Head
from arena_runner.policies.normed import normed
from arena_runner.policies.spaces import Categories, Image, Part, entered

Params = Mapping[str, Tensor]
Memory = tuple[Tensor, Tensor]
"""hidden and cell state of every layer: (N, L, B, H)"""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": torch.relu,
    "Tanh": torch.tanh,
    "GELU": functional.gelu,
    "ELU": functional.elu,
    "LeakyReLU": functional.leaky_relu,
    "Sigmoid": torch.sigmoid,
    "Softplus": functional.softplus,
    "Identity": lambda x: x,
}


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter of one member."""

    name: str
    shape: tuple[int, ...]
    init: Literal["orthogonal", "uniform", "zeros", "ones", "value"] = "zeros"
    gain: float = 1.0
    """factor of an orthogonal matrix, bound of a uniform draw, the value itself"""


def layout(design: Design) -> tuple[Slot, ...]:
    """Every parameter, in the order in which it lies in memory."""
    slots = [*_encoder_slots(design)]
    for head in design.heads:
        slots += _head_slots(design, head)
    if design.log_std:
        slots.append(Slot("log_std", (design.log_std,), "value", design.log_std_init))
    return tuple(slots)


def encode(design: Design, p: Params, seen: Mapping[str, Tensor]) -> Tensor:
    """What is seen → latent (N, B, latent_dim); encoders without memory."""
    encoder, act = design.encoder, _activation(design.encoder)
    match encoder:
        case Mlp():
            x = flat(design, seen)
            for n in range(len(encoder.hidden_size)):
                x = _dense(p, f"encoder.{n}", x, act)
        case Cnn():
            ((name, part),) = design.sees.items()
            x = _convolved(encoder, p, "encoder", part, seen[name])
        case Simba():
            x = _simba(encoder, p, flat(design, seen))
        case MultiInput():
            x = torch.cat([_one_part(encoder, p, n, design.sees[n], seen[n]) for n in design.sees], -1)
        case _:
            raise DesignError(f"encoder {encoder.arch} needs its memory")
    return _dense(p, "encoder.latent", x, _last(encoder, act))


def head(design: Design, p: Params, index: int, latent: Tensor, noise: Tensor | None = None) -> Tensor:
    """Latent (with what enters beside it) → one output (N, B, outputs).

    A noisy head is its means without `noise`: `noise_width` normal numbers, for every row (N, B, k) or for all
    rows of a member (N, 1, k).
    """
    one = design.heads[index]
    x, act = latent, ACTIVATIONS[one.hidden.activation]
    widths = [*one.hidden.hidden_size, one.outputs]
    for n, width in enumerate(widths):
        name, last = (f"{one.name}.{n}", False) if n + 1 < len(widths) else (f"{one.name}.out", True)
        drawn = None
        if noise is not None and one.noisy:
            size = x.shape[-1] + width
            drawn, noise = _spread(noise[..., :size]), noise[..., size:]
        x = _dense(p, name, x, None if last else act, drawn)
    return x if one.hidden.output_activation is None else ACTIVATIONS[one.hidden.output_activation](x)


def noise_width(design: Design, index: int) -> int:
    """Normal numbers that one draw of a noisy head needs."""
    one = design.heads[index]
    sizes = [design.latent_dim + one.extra, *one.hidden.hidden_size, one.outputs]
    return sum(a + b for a, b in pairwise(sizes)) if one.noisy else 0


def _spread(drawn: Tensor) -> Tensor:
    """`sign(x) sqrt(|x|)`, of which the noise of a weight is the product of two."""
    return drawn.sign() * drawn.abs().sqrt()


def recurrent(design: Design, p: Params, seen: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
    """One step of a network with memory: (N, B, …) → latent and the memory after it."""
    encoder, (hidden, cell) = design.encoder, memory
    if isinstance(encoder, CnnLstm):
        ((name, part),) = design.sees.items()
        x = _convolved(encoder, p, "encoder.picture", part, seen[name])
    else:
        assert isinstance(encoder, Lstm)
        x = flat(design, seen)
    hs, cs = [], []
    for n in range(encoder.num_layers):
        gates = torch.baddbmm(p[f"encoder.{n}.bias"].unsqueeze(1), x, p[f"encoder.{n}.input"])
        gates = gates + torch.bmm(hidden[:, n], p[f"encoder.{n}.hidden"])
        i, f, g, o = gates.chunk(4, -1)
        c = torch.sigmoid(f) * cell[:, n] + torch.sigmoid(i) * torch.tanh(g)
        x = torch.sigmoid(o) * torch.tanh(c)
        hs.append(x)
        cs.append(c)
    latent = _dense(p, "encoder.latent", x, _last(encoder, torch.relu))
    return latent, (torch.stack(hs, 1), torch.stack(cs, 1))


def flat(design: Design, seen: Mapping[str, Tensor]) -> Tensor:
    """All parts as one row of floats."""
    if len(seen) == 1:
        (name,) = seen
        return entering(design.sees[name], seen[name])
    return torch.cat([entering(design.sees[name], seen[name]) for name in design.sees], -1)


def entering(part: Part, x: Tensor) -> Tensor:
    """A stored part as floats in a row: (N, B, …) → (N, B, size)."""
    match part:
        case Categories():
            hot = [functional.one_hot(x[..., n], size) for n, size in enumerate(part.sizes)]
            return (hot[0] if len(hot) == 1 else torch.cat(hot, -1)).float()
        case Image():
            x = x.flatten(-3)
            return x.float() / 255 if part.scaled else x
        case _:
            return x


def _last(encoder: object, act: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What an encoder's own output passes: as its layers do, unless the manifest says."""
    written = getattr(encoder, "output_activation", None)
    return act if written is None else ACTIVATIONS[written]


def _activation(encoder: object) -> Callable[[Tensor], Tensor]:
    return ACTIVATIONS[getattr(encoder, "activation", "ReLU")]


def _dense(
    p: Params,
    name: str,
    x: Tensor,
    act: Callable[[Tensor], Tensor] | None,
    noise: Tensor | None = None,
) -> Tensor:
    """`act(norm(x W + b))`; norm, act and factorised noise on W and b (arXiv 1706.10295) where there are any."""
    entered = x
    x = torch.baddbmm(p[f"{name}.bias"].unsqueeze(1), x, p[f"{name}.weight"])
    if noise is not None:
        rows, columns = noise.split([entered.shape[-1], x.shape[-1]], -1)
        shaken = torch.baddbmm(
            p[f"{name}.noise_bias"].unsqueeze(1), entered * rows, p[f"{name}.noise_weight"]
        )
        x = torch.addcmul(x, shaken, columns)
    scale = p.get(f"{name}.scale")
    if scale is not None:
        relu = act is torch.relu
        x = normed(x, scale, p[f"{name}.shift"], relu=relu)
        act = None if relu else act
    return x if act is None else act(x)


def _convolved(encoder: Cnn | CnnLstm, p: Params, name: str, part: Part, x: Tensor) -> Tensor:
    """Pictures of all members in one grouped convolution: (N, B, C, H, W) → (N, B, features)."""
    assert isinstance(part, Image)
    members, rows = x.shape[:2]
    x = x.transpose(0, 1).flatten(1, 2)  # (B, N*C, H, W)
    x = x.float() / 255 if part.scaled else x
    for n, stride in enumerate(encoder.stride_size):
        weight, bias = p[f"{name}.{n}.weight"], p[f"{name}.{n}.bias"]
        x = functional.conv2d(x, weight.flatten(0, 1), bias.flatten(), stride=stride, groups=members)
        if encoder.layer_norm:
            x = functional.group_norm(x, members)
        x = ACTIVATIONS[encoder.activation](x)
    return x.reshape(rows, members, -1).transpose(0, 1)


def _simba(encoder: Simba, p: Params, x: Tensor) -> Tensor:
    """Residual blocks over a normalised stream (Lee et al., arXiv 2410.09754), without running statistics."""
    x = _dense(p, "encoder.in", x, None)
    for n in range(encoder.num_blocks):
        y = functional.layer_norm(x, x.shape[-1:])
        y = _dense(p, f"encoder.{n}.up", y, torch.relu)
        x = x + _dense(p, f"encoder.{n}.down", y, None)
    return functional.layer_norm(x, x.shape[-1:])


def _one_part(encoder: MultiInput, p: Params, name: str, part: Part, x: Tensor) -> Tensor:
    if isinstance(part, Image):
        return _dense(
            p, f"part.{name}.out", _convolved(_cnn_of(encoder, part), p, f"part.{name}", part, x), torch.relu
        )
    x = entering(part, x)
    if encoder.vector_space_mlp:
        for n in range(len(_mlp_of(encoder).hidden_size)):
            x = _dense(p, f"part.{name}.{n}", x, ACTIVATIONS[_mlp_of(encoder).activation])
    return x


def _mlp_of(encoder: MultiInput) -> Mlp:
    return encoder.mlp_config or Mlp(hidden_size=(64,))


def _cnn_of(encoder: MultiInput, image: Image) -> Cnn:
    if encoder.cnn_config is not None:
        return encoder.cnn_config
    if min(image.height, image.width) >= 36:
        return Cnn(channel_size=(32, 64, 64), kernel_size=(8, 4, 3), stride_size=(4, 2, 1))
    return Cnn(channel_size=(16, 32), kernel_size=(3, 3), stride_size=(1, 1))


def _dense_slots(
    name: str, inputs: int, outputs: int, *, norm: bool, gain: float = math.sqrt(2), noisy: float = 0.0
) -> list[Slot]:
    slots = [Slot(f"{name}.weight", (inputs, outputs), "orthogonal", gain), Slot(f"{name}.bias", (outputs,))]
    if noisy:
        least = noisy / math.sqrt(inputs)
        slots += [
            Slot(f"{name}.noise_weight", (inputs, outputs), "value", least),
            Slot(f"{name}.noise_bias", (outputs,), "value", least),
        ]
    if norm:
        slots += [Slot(f"{name}.scale", (outputs,), "ones"), Slot(f"{name}.shift", (outputs,))]
    return slots


def _encoder_slots(design: Design) -> list[Slot]:
    encoder, norm = design.encoder, bool(getattr(design.encoder, "layer_norm", False))
    size = sum(entered(part) for part in design.sees.values())
    slots: list[Slot] = []
    match encoder:
        case Mlp():
            for n, width in enumerate(encoder.hidden_size):
                slots += _dense_slots(f"encoder.{n}", size, width, norm=norm)
                size = width
        case Cnn():
            (part,) = design.sees.values()
            slots, size = _conv_slots(encoder, "encoder", part)
            norm = False
        case Simba():
            slots, size = _simba_slots(encoder, size), encoder.hidden_size
        case Lstm():
            slots, size = _lstm_slots(encoder, size), encoder.hidden_state_size
        case CnnLstm():
            (part,) = design.sees.values()
            slots, size = _conv_slots(encoder, "encoder.picture", part)
            slots, size = slots + _lstm_slots(encoder, size), encoder.hidden_state_size
            norm = False
        case MultiInput():
            slots, size = _multi_slots(encoder, design)
    return slots + _dense_slots("encoder.latent", size, design.latent_dim, norm=norm)


def _conv_slots(encoder: Cnn | CnnLstm, name: str, part: Part) -> tuple[list[Slot], int]:
    assert isinstance(part, Image)
    slots, channels, height, width = [], part.channels, part.height, part.width
    layers = zip(encoder.channel_size, encoder.kernel_size, encoder.stride_size, strict=True)
    for n, (out, kernel, stride) in enumerate(layers):
        slots += [
            Slot(f"{name}.{n}.weight", (out, channels, kernel, kernel), "orthogonal", math.sqrt(2)),
            Slot(f"{name}.{n}.bias", (out,)),
        ]
        channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if height < 1 or width < 1:
            raise DesignError(f"layer {n + 1} of the convolutions is larger than what is left of the image")
    return slots, channels * height * width


def _simba_slots(encoder: Simba, size: int) -> list[Slot]:
    width, wide = encoder.hidden_size, encoder.hidden_size * encoder.scale_factor
    slots = _dense_slots("encoder.in", size, width, norm=False, gain=1.0)
    for n in range(encoder.num_blocks):
        slots += _dense_slots(f"encoder.{n}.up", width, wide, norm=False)
        slots += _dense_slots(f"encoder.{n}.down", wide, width, norm=False, gain=1.0)
    return slots


def _lstm_slots(encoder: Lstm | CnnLstm, size: int) -> list[Slot]:
    width, slots = encoder.hidden_state_size, []
    bound = 1 / math.sqrt(width)
    for n in range(encoder.num_layers):
        slots += [
            Slot(f"encoder.{n}.input", (size, 4 * width), "uniform", bound),
            Slot(f"encoder.{n}.hidden", (width, 4 * width), "uniform", bound),
            Slot(f"encoder.{n}.bias", (4 * width,), "uniform", bound),
        ]
        size = width
    return slots


def _multi_slots(encoder: MultiInput, design: Design) -> tuple[list[Slot], int]:
    slots: list[Slot] = []
    total = 0
    for name, part in design.sees.items():
        if isinstance(part, Image):
            made, size = _conv_slots(_cnn_of(encoder, part), f"part.{name}", part)
            slots += made + _dense_slots(f"part.{name}.out", size, encoder.latent_dim, norm=False)
            size = encoder.latent_dim
        else:
            size = entered(part)
            mlp = _mlp_of(encoder)
            for n, width in enumerate(mlp.hidden_size if encoder.vector_space_mlp else ()):
                slots += _dense_slots(f"part.{name}.{n}", size, width, norm=mlp.layer_norm)
                size = width
        total += size
    return slots, total


def _head_slots(design: Design, one: Head) -> list[Slot]:
    size, slots = design.latent_dim + one.extra, []
    for n, width in enumerate(one.hidden.hidden_size):
        slots += _dense_slots(f"{one.name}.{n}", size, width, norm=one.hidden.layer_norm, noisy=one.noisy)
        size = width
    gain = 0.01 if one.hidden.output_vanish else 1.0
    return slots + _dense_slots(f"{one.name}.out", size, one.outputs, norm=False, gain=gain, noisy=one.noisy)
