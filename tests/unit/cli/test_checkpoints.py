"""Which checkpoint `arena checkpoints pull` takes, and what stands on its card."""

from __future__ import annotations

import pytest

from arena_gitops.cli.checkpoints import choose
from arena_gitops.errors import UsageError
from arena_gitops.spec.job import Checkpoint, RunStatus


def saved(step, member, fitness):
    digest = f"sha256:{step * 10 + member:064d}"
    return Checkpoint(
        step=step,
        member=member,
        generation=0,
        fitness=fitness,
        digest=digest,
        files={"adapter_model.safetensors": digest},
        size_bytes=1,
    )


MADE = (saved(8, 0, 0.1), saved(8, 1, 0.3), saved(16, 0, 0.2), saved(16, 1, None))
RUN = RunStatus(
    run_id="r_1",
    experiment="e",
    fingerprint="f",
    state="completed",
    max_steps=16,
    checkpoints=MADE,
    best=MADE[1],
)


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ("best", "step_8/m1"),
        ("step_16", "step_16/m0"),
        ("step_16/m1", "step_16/m1"),
        ("step_8", "step_8/m1"),
        ("step_15", "step_8/m1"),
        ("step_99/m1", "step_16/m1"),
    ],
)
def test_a_rule_names_a_checkpoint(rule, label):
    assert choose(RUN, rule).label == label


@pytest.mark.parametrize("rule", ["step_7", "step_8/m7", "newest"])
def test_a_rule_that_names_nothing_lists_what_there_is(rule):
    with pytest.raises(UsageError, match="there are: step_8/m0, step_8/m1, step_16/m0, step_16/m1"):
        choose(RUN, rule)
