"""The `network` section of classic algorithms: encoder by `arch`, head, and the ranges they may grow in.

Without `arch` the encoder is chosen by the observation space when the run starts, so its fields stay as
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from arena_gitops.spec.manifest.sections import TextNetwork
from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Section

Positive = Annotated[Int, Field(gt=0)]
AboveOne = Annotated[Int, Field(gt=1)]
Share = Annotated[Float, Field(ge=0, le=1)]
Sizes = Annotated[tuple[Positive, ...], Field(min_length=1)]
_INIT = Annotated[Bool, Only(True, why="layers always begin orthogonal")]
Activation = Literal[
    "Tanh",
    "GELU",
    "ReLU",
    "ELU",
    "LeakyReLU",
    "Sigmoid",
    "Softplus",
    "Softmax",
    "GumbelSoftmax",
    "PReLU",
    "Identity",
]


def _within(what: str, values: Sequence[int], low: int, high: int) -> None:
    for value in values:
        if not low <= value <= high:
            raise ValueError(f"{what} {value} is outside [{low}, {high}]")


class Mlp(Section):
    """A fully connected network."""

    arch: Literal["mlp"] = "mlp"
    hidden_size: Sizes
    activation: Activation = "ReLU"
    output_activation: Activation | None = None
    layer_norm: Bool = True
    init_layers: _INIT = True
    output_vanish: Bool = True
    min_hidden_layers: Positive = 1
    max_hidden_layers: AboveOne = 6
    min_mlp_nodes: Positive = 8
    max_mlp_nodes: AboveOne = 256

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        _within("number of layers", [len(self.hidden_size)], self.min_hidden_layers, self.max_hidden_layers)
        _within("hidden_size", self.hidden_size, self.min_mlp_nodes, self.max_mlp_nodes)
        return self


class _Convolutional(Section):
    channel_size: Sizes
    kernel_size: Sizes
    stride_size: Sizes
    min_hidden_layers: Positive = 1
    max_hidden_layers: AboveOne = 6
    min_channel_size: Positive = 8
    max_channel_size: AboveOne = 256
    layer_norm: Bool = False
    init_layers: _INIT = True
    activation: Activation = "ReLU"

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        lengths = {len(self.channel_size), len(self.kernel_size), len(self.stride_size)}
        if len(lengths) > 1:
            raise ValueError("channel_size, kernel_size and stride_size must have equal lengths")
        _within("number of layers", [len(self.channel_size)], self.min_hidden_layers, self.max_hidden_layers)
        _within("channel_size", self.channel_size, self.min_channel_size, self.max_channel_size)
        return self


class Cnn(_Convolutional):
    """A convolutional encoder."""

    arch: Literal["cnn"] = "cnn"


class _Recurrent(Section):
    hidden_state_size: Positive
    num_layers: Positive = 1
    min_hidden_state_size: Positive = 8
    max_hidden_state_size: AboveOne = 256
    min_layers: Annotated[Int, Field(ge=0)] = 1
    max_layers: Annotated[Int, Field(ge=1)] = 6
    dropout: Annotated[Share, Only(0.0, why="a memory without dropout is the only one here")] = 0.0

    @model_validator(mode="after")
    def _memory_in_range(self) -> Self:
        low, high = self.min_hidden_state_size, self.max_hidden_state_size
        _within("hidden_state_size", [self.hidden_state_size], low, high)
        _within("num_layers", [self.num_layers], self.min_layers, self.max_layers)
        return self


class Lstm(_Recurrent):
    """A recurrent encoder."""

    arch: Literal["lstm"] = "lstm"


class CnnLstm(_Convolutional, _Recurrent):
    """A convolutional encoder with memory."""

    arch: Literal["cnn_lstm"] = "cnn_lstm"
    output_activation: Activation | None = None


class Simba(Section):
    """A residual encoder."""

    arch: Literal["simba"] = "simba"
    hidden_size: Positive
    num_blocks: Positive
    output_activation: Activation | None = None
    scale_factor: Positive = 4
    min_blocks: Positive = 1
    max_blocks: AboveOne = 4
    min_mlp_nodes: Positive = 8
    max_mlp_nodes: AboveOne = 256


class MultiInput(Section):
    """An encoder of dictionary observations."""

    arch: Literal["multiinput"] = "multiinput"
    latent_dim: Positive = 128
    vector_space_mlp: Bool = False
    min_latent_dim: Positive = 16
    max_latent_dim: AboveOne = 128
    mlp_config: Mlp | None = None
    cnn_config: Cnn | None = None


Encoder = Annotated[Mlp | Cnn | CnnLstm | Lstm | MultiInput | Simba, Field(discriminator="arch")]


class _Classic(Section):
    simba: Bool = False

    random_seed: Annotated[Int | None, NotActedOn("mutation.rand_seed seeds the whole run")] = None
    squash_output: Annotated[
        Bool | None, Only(False, why="squashed stochastic policies have no room yet; SAC is one")
    ] = None
    has_evolvable_encoder: Annotated[Bool | None, NotActedOn("mutation.probabilities say what evolves")] = (
        None
    )


class ClassicNetwork(_Classic):
    """A network whose encoder is declared by `arch`."""

    latent_dim: Positive = 128
    min_latent_dim: Positive = 16
    max_latent_dim: AboveOne = 128
    encoder_config: Encoder
    head_config: Mlp

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        _within("latent_dim", [self.latent_dim], self.min_latent_dim, self.max_latent_dim)
        return self


class DeferredNetwork(_Classic):
    """A network whose encoder follows from the observation space."""

    latent_dim: Positive = 32
    min_latent_dim: Positive = 8
    max_latent_dim: AboveOne = 128
    encoder_config: dict[str, JsonValue] = Field(default_factory=dict)
    head_config: Mlp | None = None

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        _within("latent_dim", [self.latent_dim], self.min_latent_dim, self.max_latent_dim)
        return self


Network = TextNetwork | ClassicNetwork | DeferredNetwork
