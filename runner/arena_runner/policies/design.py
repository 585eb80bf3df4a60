"""A network on paper: encoder, latent, heads. Members whose designs are equal share one stack.

The vocabulary is the manifest's (`spec.manifest.network`): a design holds the same frozen sections, so that the
ranges an architecture may wander in travel with it. Where the manifest says nothing the encoder follows from what
is seen: MLP for vectors, CNN for one image, multi-input for several parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from arena_gitops.errors import ArenaError
from arena_gitops.spec.manifest.network import (
    Cnn,
    CnnLstm,
    DeferredNetwork,
    Encoder,
    Lstm,
    Mlp,
    MultiInput,
    Network,
    Simba,
)
from arena_gitops.spec.manifest.sections import TextNetwork
from arena_gitops.spec.resource import Frozen
from arena_runner.policies.spaces import Image, Seen

HIDDEN = 64
NO_ROOM = {"GumbelSoftmax", "PReLU", "Softmax"}
"""activations that have no room"""


class DesignError(ArenaError):
    """The manifest's network does not fit what is seen, or asks for what has no room."""


class Head(Frozen):
    """One output of a network."""

    name: str
    outputs: int
    hidden: Mlp
    extra: int = 0
    """numbers that enter beside the latent: an action, for a critic"""
    noisy: float = 0.0
    """standard deviation of NoisyNet's initial noise; 0 for ordinary layers"""


class Design(Frozen):
    """Everything that decides the shapes of a network's parameters."""

    sees: Seen
    encoder: Encoder
    latent_dim: int
    min_latent_dim: int
    max_latent_dim: int
    heads: tuple[Head, ...]
    log_std: int = 0
    """size of a free vector of log standard deviations"""
    log_std_init: float = 0.0
    squash: bool = False
    """whether actions pass tanh"""

    @property
    def key(self) -> str:
        """Equal for equal designs."""
        return self.model_dump_json()


def plan(network: Network | None, sees: Seen, *, recurrent: bool = False) -> Design:
    """The body of a manifest's network for what is seen; the algorithm adds heads."""
    if isinstance(network, TextNetwork):
        raise DesignError("a language model is no policy network")
    network = network or DeferredNetwork()
    written = network.encoder_config
    encoder = (
        _encoder(dict(written), sees, simba=network.simba, recurrent=recurrent)
        if isinstance(written, Mapping)
        else written
    )
    head = network.head_config or Mlp(hidden_size=(HIDDEN,))
    _fits(encoder, sees)
    if recurrent != isinstance(encoder, Lstm | CnnLstm):
        how = "needs a memory" if recurrent else "learns no sequences"
        raise DesignError(f"an encoder of kind {encoder.arch} under an algorithm that {how}")
    for section in (encoder, head):
        _check_activations(section)
    return Design(
        sees=sees,
        encoder=encoder,
        latent_dim=network.latent_dim,
        min_latent_dim=network.min_latent_dim,
        max_latent_dim=max(network.max_latent_dim, network.latent_dim),
        heads=(Head(name="", outputs=0, hidden=head),),
    )


def with_heads(design: Design, *heads: tuple[str, int], extra: int = 0, noisy: float = 0.0) -> Design:
    """The body with these outputs, each through the manifest's head."""
    hidden = design.heads[0].hidden
    made = tuple(Head(name=n, outputs=k, hidden=hidden, extra=extra, noisy=noisy) for n, k in heads)
    return design.model_copy(update={"heads": made})


def _encoder(written: dict[str, Any], sees: Seen, *, simba: bool, recurrent: bool) -> Any:
    parts = list(sees.values())
    images = [part for part in parts if isinstance(part, Image)]
    if "hidden_state_size" in written or recurrent:
        return _memory(written, images)
    if len(parts) > 1:
        return _read(MultiInput, written)
    if images:
        return _read(Cnn, _cnn(written, images[0]))
    if simba:
        return _read(Simba, {"hidden_size": HIDDEN, "num_blocks": 2, **written})
    return _read(Mlp, {"hidden_size": [HIDDEN], **written})


def _memory(written: dict[str, Any], images: Sequence[Image]) -> Any:
    state = {"hidden_state_size": HIDDEN, **{k: v for k, v in written.items() if k != "hidden_size"}}
    return _read(CnnLstm, _cnn(state, images[0])) if images else _read(Lstm, state)


def _cnn(written: dict[str, Any], image: Image) -> dict[str, Any]:
    """Small pictures get small kernels; large ones the network of the DQN paper."""
    if "channel_size" in written:
        return written
    if min(image.height, image.width) >= 36:
        shape = {"channel_size": [32, 64, 64], "kernel_size": [8, 4, 3], "stride_size": [4, 2, 1]}
    else:
        shape = {"channel_size": [16, 32], "kernel_size": [3, 3], "stride_size": [1, 1]}
    return {**shape, **written}


def _read(model: type[Any], written: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(written)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["network.encoder_config", *map(str, first["loc"])])
        arch = model.model_fields["arch"].default
        raise DesignError(
            f"{place}: {first['msg']} (the observation asks for an encoder of kind {arch})"
        ) from error


def _fits(encoder: Encoder, sees: Seen) -> None:
    images = [name for name, part in sees.items() if isinstance(part, Image)]
    match encoder:
        case Cnn() | CnnLstm():
            if len(sees) != 1 or not images:
                raise DesignError(f"an encoder of kind {encoder.arch} needs an observation that is one image")
        case Mlp() | Lstm() | Simba():
            if images and len(sees) > 1:
                raise DesignError(
                    f"an encoder of kind {encoder.arch} cannot see {', '.join(images)}: use multiinput"
                )
        case MultiInput():
            pass


def _check_activations(section: Any) -> None:
    for name in ("activation", "output_activation"):
        value = getattr(section, name, None)
        if value in NO_ROOM:
            raise DesignError(f"activation {value} has no room here")
