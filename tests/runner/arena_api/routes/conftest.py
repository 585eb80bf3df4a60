"""The published client's routes on a world without processes."""

from __future__ import annotations

import pytest
from arena_asks import make_dataset, submit
from person import asking
from postgres import on_both

from arena_gitops.spec.wire import Tier
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.home import Home
from arena_runner.server.settings import Limits, Settings, TierFile
from arena_runner.server.store.database import Store
from arena_runner.server.world import World


@pytest.fixture
def settings() -> Settings:
    return Settings(limits=Limits(max_steps=64))


def pytest_generate_tests(metafunc):
    on_both(metafunc)


@pytest.fixture
def world(tmp_path, settings, databases):
    home = Home(tmp_path / "home")
    home.prepare()
    tier = Tier(id="local", num_cpus=2, ram_gb=4.0, credits_per_node_hour=1.0, slots=0)
    with databases.world(home.root) as url:
        store = Store.open(url)
        yield World(home, store, BlobStore(home.blobs), settings, TierFile(tiers=(tier,)))
        store.close()


@pytest.fixture
def http(world):
    with asking(world) as client:
        yield client


@pytest.fixture
def submitted(http):
    """The verdict of a submission that was accepted."""
    make_dataset(http)
    return submit(http)[-1]
