"""A submission is asked for once: what became of a lost answer is looked for, by name."""

import pytest
from between import between
from puts import EXPERIMENT, put, put_experiment, usual
from stacks import ROWS

from arena_gitops.errors import PlatformError
from arena_gitops.platforms.arena_cloud.platform import ArenaCloudPlatform

SUBMIT = "/api/cli/v1/experiments/jobs/submit"
CREATE = "/api/cli/v1/datasets/create"


@pytest.fixture
def proxy(arena_only):
    with between(arena_only[0]) as found:
        yield found


@pytest.fixture
def cloud(proxy, arena_only):
    platform = ArenaCloudPlatform(proxy.url, arena_only[1], pause=lambda _: None)
    yield platform
    platform.close()


def asked(proxy, path):
    return [found for _, found in proxy.seen].count(path)


def test_answered_503_after_it_took_effect_it_is_found_and_not_submitted_again(cloud, proxy, stack, unique):
    proxy.after = lambda _method, path, _status: (503, b"") if path in {SUBMIT, CREATE} else None
    rows = f"{ROWS}What is {next(iter(unique.values()))} + 0?,#### 0\n"  # nobody else's: there is something to create
    document = put_experiment(cloud, stack.dataset(rows=rows).reward().experiment(set=unique))
    assert (asked(proxy, SUBMIT), asked(proxy, CREATE)) == (1, 1)
    again = put(cloud, stack, EXPERIMENT, etag=document.etag, key="another apply")
    assert again.run.run_id == document.run.run_id
    assert asked(proxy, SUBMIT) == 1


def test_answered_503_before_it_arrived_it_fails_and_the_next_apply_submits_it(cloud, proxy, stack, unique):
    proxy.before = lambda _method, path: (503, b"") if path == SUBMIT else None
    with pytest.raises(PlatformError, match="503"):
        put_experiment(cloud, usual(stack, unique))
    assert asked(proxy, SUBMIT) == 1
    assert EXPERIMENT not in cloud.observe(stack.owner).resources
    proxy.quiet()
    assert put_experiment(cloud, stack).version == 1
    assert asked(proxy, SUBMIT) == 2
