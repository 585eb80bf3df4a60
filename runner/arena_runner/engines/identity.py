"""Proof that an engine samples from the policy it should: the field's most repeated silent bug.

Two halves. The *digest* half reads the tensors back from where the engine computes, after every sync (`reading`). The
*path* half shows that what lies there is what answers: a probe adapter, strong enough to be seen, goes through the
very code that sends and serves real ones and must change greedy completions exactly as the adapter's format
says (`plain`), in every targeted layer, several names at once, every name a new one. It runs when an engine
starts, after a restart, and whenever ranks or targets change.

Several layers' probes share an adapter, each told apart by what the format says of the adapter without it; a
layer that cannot be told that way, or looks wrong, gets an adapter of its own.

What engine and format may differ by is measured where nothing can be wrong yet, on the bare base model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from arena_runner import peft_format, seeds
from arena_runner.engines.base import Completion
from arena_runner.engines.plain import Adapter, Text, linear, logprobs
from arena_runner.engines.reading import PolicyMismatchError
from arena_runner.models import BaseModel
from arena_runner.peft_format import AdapterConfig

PROMPT = 4
"""tokens of a probe's prompt"""
CALIBRATE = (16, 16)
"""completions and tokens of the bare base model: 256 in all"""
CALIBRATE_EXACT = (4, 6)
"""the same in fp32, where `EXACT` is far above what is found, and this only sees whether it is the same model"""
PROBE = (2, 4, 12, 24)
"""tokens sampled for a targeted layer, the first by the prompt's own forward; more where fewer could not tell"""
EXACT = 1e-3
"""nats per token in fp32 below which nothing is suspected; seen: 3e-5"""
SHARED = 6
"""layers whose probes share an adapter"""
SHARING = 2
"""times a probe may have been raised and still share one"""
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
    """times it looked wrong in an adapter of its own"""
    alone: bool = False
    """whether it has an adapter of its own"""

    @property
    def tokens(self) -> int:
        """How many are sampled."""
        return PROBE[min(self.raised + 2 * self.looks, len(PROBE) - 1)]

    @property
    def strength(self) -> float:
        """Of its probe, in units of what the layer itself does."""
        return 4.0**self.raised

    def stronger(self) -> Turn | None:
        """The next attempt, if one is left."""
        raised = self.raised + 1
        return (
            replace(self, raised=raised, alone=self.alone or raised > SHARING)
            if raised < len(PROBE)
            else None
        )

    def again(self) -> Turn:
        """The same probe in an adapter of its own; there, on another prompt."""
        return replace(self, alone=True, looks=self.looks + self.alone)


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
    shapes, sizes, sent = subject.shapes, _sizes(base, targets), 0
    turns = [Turn(module) for module in targets]
    while turns:
        later: list[Turn] = []
        for now in _batches(turns, len(shapes)):
            probes = {
                f"probe-{sent + place}": [
                    _probe(base, turn.module, turn.strength * sizes[turn.module], shape) for turn in own
                ]
                for place, (own, shape) in enumerate(zip(now, shapes, strict=False))
            }
            sent += len(now)
            asked = [prompt(base, own[0].looks) for own in now]
            new_tokens = max(turn.tokens for own in now for turn in own)
            with _loaded(subject, {name: together(parts) for name, parts in probes.items()}):
                seen = _seen(base, subject, probes, asked, new_tokens=new_tokens, noise=noise)
            for turn, found in zip(chain.from_iterable(now), seen, strict=True):
                after = _judged(turn, found, noise)
                if isinstance(after, Turn):
                    later.append(after)
                else:
                    yield turn.module, after
        turns = later


def _batches(turns: Sequence[Turn], places: int) -> Iterator[list[list[Turn]]]:
    """As many adapters as there are places, each with the layers it has; layers that share one are far apart."""
    sharing = [turn for turn in turns if not turn.alone]
    count = max(-(-len(sharing) // SHARED), min(places, len(sharing)))
    adapters = [sharing[n::count] for n in range(count)] + [[turn] for turn in turns if turn.alone]
    adapters = [own if len(own) > 1 else [replace(own[0], alone=True)] for own in adapters]
    for at in range(0, len(adapters), places):
        yield adapters[at : at + places]


def _judged(turn: Turn, found: Seen, noise: Noise) -> Turn | float | None:
    """The gain of a layer's probe, None where it cannot be told, or how to look once more; raises where it is wrong."""
    if found.size < VISIBLE * max(noise.square, EXACT):
        return turn.stronger()
    wrong = _wrong(turn.module, found, noise)
    if wrong is None:
        return found.gain
    if turn.alone and (noise.exact or turn.looks + 1 == LOOKS):
        raise PolicyMismatchError(wrong)
    return turn.again()


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
    probes: Mapping[str, list[Adapter]],
    prompts: Sequence[tuple[int, ...]],
    *,
    new_tokens: int,
    noise: Noise,
) -> list[Seen]:
    """What every probe does to the greedy completion of its name; the base model is asked in the same batch."""
    done = subject.sample([*zip(probes, prompts, strict=True), (None, prompt(base, 0))], new_tokens)
    texts = [Text(None, prompt(base, 0), done[-1].token_ids)]
    for parts, ids, completion in zip(probes.values(), prompts, done, strict=False):
        rest = [parts[:n] + parts[n + 1 :] for n in range(len(parts))]
        texts += [
            Text(together(some) if some else None, ids, completion.token_ids) for some in (parts, *rest)
        ]
    opinions = iter(logprobs(base, texts))
    _demand_bare(next(opinions), torch.tensor(done[-1].logprobs), noise)
    seen = []
    for parts, completion in zip(probes.values(), done, strict=False):
        means, told = next(opinions), torch.tensor(completion.logprobs)
        seen += [Seen(means - without, told - without) for without in islice(opinions, len(parts))]
    return seen


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


def together(parts: Sequence[Adapter]) -> Adapter:
    """One adapter with the layers of several of equal shape."""
    targets = {leaf for part in parts for leaf in part.config.targets}
    tensors = {name: tensor for part in parts for name, tensor in part.tensors.items()}
    return Adapter(tensors, replace(parts[0].config, targets=tuple(sorted(targets))))


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
