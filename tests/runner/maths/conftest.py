"""A population of three members of different rank on a tiny model, in float64."""

import pytest
from populations import make_learner


@pytest.fixture
def learner(tiny_model_dir):
    return make_learner(tiny_model_dir)
