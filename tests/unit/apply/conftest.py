"""Platforms that fail on purpose, and a world whose time and ears belong to the test."""

from dataclasses import dataclass, field

import pytest

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.platforms.memory import MemoryPlatform


@dataclass
class Clock:
    """Time that passes only by sleeping; what happens meanwhile can be said."""

    time: float = 0.0
    meanwhile: list = field(default_factory=list)

    def now(self):
        return 1_800_000_000.0 + self.time

    def monotonic(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds
        if self.meanwhile:
            self.meanwhile.pop(0)()


class Failing(MemoryPlatform):
    """Raises for the addresses it was told; remembers every call in order."""

    def __init__(self, failures=(), **kwargs):
        super().__init__(**kwargs)
        self.failures = dict(failures)
        self.calls = []
        self.on_put = lambda: None

    def upload(self, blob):
        self.calls.append(("upload", blob.path.name))
        super().upload(blob)

    def put(self, address, body, **under):
        self.calls.append(("put", str(address)))
        self.on_put()
        if error := self.failures.get(str(address)):
            raise error
        return super().put(address, body, **under)

    def retire(self, address, owner, **under):
        self.calls.append(("retire", str(address)))
        super().retire(address, owner, **under)

    def called(self, name):
        return [what for call, what in self.calls if call == name]


class Scene:
    """A world, and apply in one word."""

    def __init__(self, failures=(), journal=None, stopping=lambda: False, **platform):
        self.platform = Failing(failures, **platform)
        self.clock = Clock()
        self.events = []
        self.world = World(self.platform, self.clock, journal, self.events.append, stopping, parallel=1)

    def plan(self, stack, **options):
        return plan(self.world, stack.state(), target="local", **options)

    def apply(self, stack, consent=Consent.APPROVED, **options):
        return apply(self.world, self.plan(stack), stack.state(), consent, **options)

    def seen(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def scene():
    return Scene
