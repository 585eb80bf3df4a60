"""Proof that an engine samples from the policy it should: the field's most repeated silent bug.

Two halves. The *digest* half reads the tensors back from where the engine computes, after every sync (`reading`). The
*path* half shows that what lies there is what answers: a probe adapter, strong enough to be seen, goes through the
very code that sends and serves real ones and must change greedy completions exactly as the adapter's format
says (`plain`), in one targeted layer after the other, several names at once, every name a new one. It runs when
an engine starts, after a restart, and whenever ranks or targets change.

What engine and format may differ by is measured where nothing can be wrong yet, on the bare base model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from arena_runner import peft_format, seeds
from arena_runner.engines.base import Completion
from arena_runner.engines.plain import Adapter, Text, linear, logprobs
from arena_runner.engines.reading import PolicyMismatchError
from arena_runner.models import BaseModel
from arena_runner.peft_format import AdapterConfig

PROMPT = 8
"""tokens of a probe's prompt"""
CALIBRATE = (8, 32)
"""completions and tokens of the bare base model: 256 in all"""
CALIBRATE_EXACT = (4, 6)
"""the same in fp32, where `EXACT` is far above what is found, and this only sees whether it is the same model"""
PROBE = (2, 4, 12, 24)
"""tokens sampled for a targeted layer, the first by the prompt's own forward; more where fewer could not tell"""
EXACT = 1e-3
"""nats per token in fp32 below which nothing is suspected; seen: 3e-5"""
VISIBLE = 10
"""a probe's effect, in units of what engine and format differ by anyway, from which it is judged"""
GAIN = 0.35
"""how far from one the share of a probe's effect may be that the engine shows: a layer left out shows none"""
LOOKS = 3
"""times a layer may look wrong where numbers are rounded: with another prompt and more tokens each time, so that
chance does not fail three times and a fault does. Seen in bf16: 7 of 120 at the first look, none at the second"""

Asked = tuple[str | None, tuple[int, ...]]
"""adapter name, or None for the base model, and prompt"""


class Subject(Protocol):
    """An engine as the proof sees it. What it does must be what it does for real adapters.

    Promotion uses the same proof: a model server is a subject whose names are those of revisions.
    """

    @property
    def shapes(self) -> Sequence[tuple[int, float]]:
        """Rank and alpha of the adapters that may be there at once beside the base model; at least one."""
        ...

    def load(self, name: str, place: int, adapter: Adapter) -> None:
        """Make an adapter of `shapes[place]` available under a name never used before."""
        ...

    def unload(self, name: str) -> None:
        """Take it away again."""
        ...

    def sample(self, asked: Sequence[Asked], new_tokens: int) -> list[Completion]:
        """Greedy completions, all in one batch, with the logprobs the engine records."""
        ...


@dataclass(frozen=True, slots=True)
class Noise:
    """What engine and format differ by where nothing is wrong: on the bare base model, in nats per token."""

    mean: float
    square: float
    """root of the mean square"""

    @property
    def tolerance(self) -> float:
        """Mean difference per token that means nothing."""
        return max(EXACT, 3 * self.mean)

    @property
    def exact(self) -> bool:
        """Whether what differs is noticed at once."""
        return self.tolerance <= EXACT


@dataclass(frozen=True, slots=True)
class Path:
    """What the path half found."""

    noise: Noise
    worst: float
    """the gain that was farthest from one"""
    modules: int
    blind: tuple[str, ...]
    """layers whose probe cannot be told from noise, however strong: their tensors are read back all the same"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One probe's sampled tokens: what the format does to them, and what the engine does."""

    effect: Tensor
    shown: Tensor

    @property
    def size(self) -> float:
        """Of the effect, over all tokens."""
        return float(self.effect.norm())

    @property
    def gain(self) -> float:
        """The share of the effect that the engine shows: one, up to noise / size."""
        return float(self.shown @ self.effect) / self.size**2


@dataclass(frozen=True, slots=True)
class Turn:
    """A layer that waits for its probe."""

    module: str
    raised: int = 0
    """times its probe was too weak to be seen"""
    looks: int = 0
    """times it looked wrong"""

    @property
    def tokens(self) -> int:
        """How many are sampled."""
        return PROBE[min(self.raised + 2 * self.looks, len(PROBE) - 1)]

    def stronger(self) -> Turn | None:
        """The next attempt, if one is left."""
        return replace(self, raised=self.raised + 1) if self.raised + 1 < len(PROBE) else None

    def again(self) -> Turn:
        """The same probe on another prompt."""
        return replace(self, looks=self.looks + 1)


def prove_path(base: BaseModel, subject: Subject, targets: Sequence[str]) -> Path:
    """Raise PolicyMismatchError unless every targeted layer of `subject` answers as an adapter's format says."""
    noise = calibrate(base, subject)
    found = list(probe_layers(base, subject, targets, noise))
    gains = [gain for _, gain in found if gain is not None]
    worst = max(gains, key=lambda gain: abs(gain - 1), default=1.0)
    return Path(noise, worst, len(targets), tuple(module for module, gain in found if gain is None))


def probe_layers(
    base: BaseModel, subject: Subject, targets: Sequence[str], noise: Noise
) -> Iterator[tuple[str, float | None]]:
    """Each layer with the gain of its probe, None where no probe can be told from noise.

    Whoever serves others beside the proof may do so between two of them.
    """
    shapes, sizes = subject.shapes, _sizes(base, targets)
    waiting, sent = [Turn(module) for module in targets], 0
    while waiting:
        now, waiting = waiting[: len(shapes)], waiting[len(shapes) :]
        probes = {
            f"probe-{sent + place}": _probe(base, turn.module, 4.0**turn.raised * sizes[turn.module], shape)
            for place, (turn, shape) in enumerate(zip(now, shapes, strict=False))
        }
        sent += len(now)
        asked = [prompt(base, turn.looks) for turn in now]
        with _loaded(subject, probes):
            seen = _seen(
                base, subject, probes, asked, new_tokens=max(turn.tokens for turn in now), noise=noise
            )
        for turn, found in zip(now, seen, strict=True):
            if found.size < VISIBLE * max(noise.square, EXACT):
                if (stronger := turn.stronger()) is not None:
                    waiting.append(stronger)
                else:
                    yield turn.module, None
            elif (wrong := _wrong(turn.module, found, noise)) is None:
                yield turn.module, found.gain
            elif noise.exact or turn.looks + 1 == LOOKS:
                raise PolicyMismatchError(wrong)
            else:
                waiting.append(turn.again())


def _wrong(module: str, seen: Seen, noise: Noise) -> str | None:
    """What is wrong with how a layer answers, if anything is."""
    apart = float((seen.shown - seen.effect).abs().mean())
    near = not noise.exact or apart <= max(EXACT, float(seen.effect.abs().mean()) / 20)
    if abs(seen.gain - 1) <= GAIN and near:
        return None
    return (
        f"an adapter on {module} alone is not served as it should be: {seen.gain:.2f} of its effect is seen, "
        f"{apart:.3g} nats per token from what its format says. Nothing was sampled for training."
    )


@contextmanager
def _loaded(subject: Subject, probes: Mapping[str, Adapter]) -> Iterator[None]:
    for place, (name, probe) in enumerate(probes.items()):
        subject.load(name, place, probe)
    try:
        yield
    finally:
        for name in probes:
            subject.unload(name)


def _seen(
    base: BaseModel,
    subject: Subject,
    probes: Mapping[str, Adapter],
    prompts: Sequence[tuple[int, ...]],
    *,
    new_tokens: int,
    noise: Noise,
) -> list[Seen]:
    """What every probe does to its own greedy completion; the base model is asked in the same batch."""
    asked = [*zip(probes, prompts, strict=True), (None, prompt(base, 0))]
    done = subject.sample(asked, new_tokens)
    adapters = [*probes.values(), None]
    theirs = [Text(a, ids, c.token_ids) for a, (_, ids), c in zip(adapters, asked, done, strict=True)]
    bare = [Text(None, text.prompt_ids, text.token_ids) for text in theirs[:-1]]
    opinions = logprobs(base, [*theirs, *bare])
    told = [torch.tensor(c.logprobs) for c in done]
    _demand_bare(opinions[len(probes)], told[-1], noise)
    means, alone = opinions[: len(probes)], opinions[len(probes) + 1 :]
    return [Seen(m - b, t - b) for m, b, t in zip(means, alone, told[:-1], strict=True)]


def _demand_bare(means: Tensor, told: Tensor, noise: Noise) -> None:
    """A row without an adapter must not be given its neighbour's."""
    apart = float((means - told).abs().mean())
    if not apart <= max(EXACT, VISIBLE * noise.square):
        raise PolicyMismatchError(
            f"beside rows with adapters the bare base model answers otherwise, by {apart:.3g} nats per token"
        )


def _probe(base: BaseModel, module: str, strength: float, shape: tuple[int, float]) -> Adapter:
    """An adapter on one layer alone, random."""
    rank, alpha = shape
    layer = linear(base, module)
    assert isinstance(layer, nn.Linear)
    generator = torch.Generator().manual_seed(seeds.key(0, "probe", *module.encode()))
    a = torch.randn(rank, layer.in_features, generator=generator) / math.sqrt(layer.in_features)
    b = torch.randn(layer.out_features, rank, generator=generator) * strength * math.sqrt(rank) / alpha
    leaf = module.rpartition(".")[2]
    name_a, name_b = peft_format.tensor_names(module)
    return Adapter({name_a: a, name_b: b}, AdapterConfig(rank, alpha, (leaf,), base.ref, base.digest))


@torch.no_grad()
def _sizes(base: BaseModel, targets: Sequence[str]) -> dict[str, float]:
    """What a layer gives over what it takes, so that a probe of strength one is as large as the layer itself."""
    sizes: dict[str, float] = {}

    def watch(module: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_layer: nn.Module, inputs: Any, output: Tensor) -> None:
            sizes[module] = float(output.float().norm() / inputs[0].float().norm()) * math.sqrt(
                inputs[0].shape[-1] / output.shape[-1]
            )

        return hook

    with ExitStack() as stack:
        for module in targets:
            stack.callback(linear(base, module).register_forward_hook(watch(module)).remove)
        base.body(input_ids=torch.tensor([prompt(base, 0)], device=base.device), use_cache=False)
    return {module: sizes.get(module, 1.0) for module in targets}


def calibrate(base: BaseModel, subject: Subject) -> Noise:
    """Measure engine and format against each other on the bare base model."""
    count, length = CALIBRATE_EXACT if base.dtype is torch.float32 else CALIBRATE
    apart = differences(base, subject, [(None, None, prompt(base, i)) for i in range(count)], length)
    noise = Noise(float(apart.abs().mean()), float(apart.square().mean().sqrt()))
    limit = 10 * EXACT if base.dtype is torch.float32 else 1.0
    if not noise.mean <= limit:
        raise PolicyMismatchError(
            f"engine and trainer differ by {noise.mean:.3g} nats per token on the bare base model; is it the same model, "
            "tokenizer and dtype?"
        )
    return noise


def differences(
    base: BaseModel,
    subject: Subject,
    asked: Sequence[tuple[str | None, Adapter | None, tuple[int, ...]]],
    new_tokens: int,
) -> Tensor:
    """What an engine says under some names less what their adapters mean, per token."""
    done = subject.sample([(name, ids) for name, _, ids in asked], new_tokens)
    texts = [Text(a, ids, c.token_ids) for (_, a, ids), c in zip(asked, done, strict=True)]
    return torch.tensor([x for c in done for x in c.logprobs]) - torch.cat(logprobs(base, texts))


def prompt(base: BaseModel, number: int) -> tuple[int, ...]:
    """Random tokens, the same on every machine."""
    size = base.head.weight.shape[0]
    return tuple(seeds.key(0, "probe", number, i) % size for i in range(PROMPT))
