"""The path half of the proof at promotion, for whatever serves: our own decoder, or a vLLM beside this process.

Called after the digest half has passed. What was shown of a rank, an alpha and a set of targets holds for as long as
the process lives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

from arena_runner.engines import identity
from arena_runner.engines.identity import Noise, Subject
from arena_runner.engines.plain import Adapter
from arena_runner.engines.reading import PolicyMismatchError
from arena_runner.models import BaseModel

ANSWERS = (4, 8)
"""completions and tokens that are compared"""
AT_ONCE = 8
"""probes that share a batch"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What was found."""

    apart: float
    """nats per token between a name's answers and what its adapter's format means"""
    tolerance: float
    layers: int
    """layers a probe went through now"""


class PathHalf:
    """Of one process."""

    def __init__(self) -> None:
        self._noise: Noise | None = None
        self._shown: set[tuple[int, float, tuple[str, ...]]] = set()

    def steps(
        self, base: BaseModel, subject: Subject, name: str, adapter: Adapter, tidy: Callable[[], None]
    ) -> Generator[None, None, Shown]:
        """Show that `name` answers by its weights; yields between layers, and returns what was found.

        `tidy` is called once the last probe has gone, whatever happens.

        Raises:
            PolicyMismatchError: It does not.
        """
        noise = self._noise = self._noise or identity.calibrate(base, subject)
        shape = (adapter.config.rank, adapter.config.alpha, adapter.modules)
        layers = 0
        if shape not in self._shown:
            try:
                for _ in identity.probe_layers(base, subject, adapter.modules, noise):
                    layers += 1
                    yield
            finally:
                tidy()
            self._shown.add(shape)
        return Shown(_apart(base, subject, name, adapter, noise), noise.tolerance, layers)


def _apart(base: BaseModel, subject: Subject, name: str, adapter: Adapter, noise: Noise) -> float:
    """What looks wrong where numbers are rounded is asked again, as a layer is."""
    count, length = ANSWERS
    apart = math.inf
    for look in range(1 if noise.exact else identity.LOOKS):
        prompts = (identity.prompt(base, count * look + number) for number in range(count))
        asked = [(name, adapter, ids) for ids in prompts]
        apart = float(identity.differences(base, subject, asked, length).abs().mean())
        if apart <= noise.tolerance:
            return apart
    raise PolicyMismatchError(
        f"{name} holds the right weights and does not answer by them: {apart:.3g} nats per token off, "
        f"{noise.tolerance:.3g} allowed"
    )


def whole(steps: Generator[None, None, Shown]) -> Shown:
    """All steps, for whoever serves nobody between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Shown = end.value
            return found
