"""Tiny runs that train in seconds, on one thread in fp32."""

import pytest
from labs import make_lab


@pytest.fixture(scope="session", autouse=True)
def _one_thread_in_fp32():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENA_THREADS", "1")
        patch.setenv("ARENA_DTYPE", "float32")
        yield


@pytest.fixture
def lab(tmp_path, tiny_model_dir):
    return make_lab(tmp_path, tiny_model_dir)


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory, tiny_model_dir):
    return make_lab(tmp_path_factory.mktemp("lab"), tiny_model_dir)
