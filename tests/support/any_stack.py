"""Any small stack, applied: what laws of plans are stated over."""

from hypothesis import assume
from hypothesis import strategies as st
from stacks import REWARD, ROWS, Stack, manifest

from arena_gitops.app import Consent, apply, plan
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.on_change import distinct_of

EXPERIMENTS = st.fixed_dictionaries(
    {},
    optional={
        "description": st.sampled_from(["", "words"]),
        "owner": st.sampled_from([None, "rl"]),
        "rerun": st.sampled_from([0, 1, 2]),
        "labels": st.sampled_from([{}, {"team": "rl"}, {"a.b": "c"}]),
        "tier": st.sampled_from([None, "medium", "large"]),
        "budget": st.sampled_from([{}, {"max_runtime_s": 60.0}, {"max_runtime_s": 90.0, "max_credits": 2}]),
        "on_upstream_change": st.sampled_from([{}, {"dataset": "new_version"}, {"dataset": "ignore"}]),
        "reuse": st.just(False),
        "notes": st.sampled_from(["", "long"]),
        "priority": st.sampled_from([0, 5]),
        "lifecycle": st.sampled_from(
            [
                {},
                {"protect": False, "replace_policy": "keep_old"},
                {"protect": False, "ignore_remote_changes": ["description", "owner"]},
                {"protect": False, "on_change": {"training.max_steps": "new_version"}},
            ]
        ),
        "set": st.fixed_dictionaries(
            {},
            optional={
                "training.max_steps": st.sampled_from([100, 1000, 2000]),
                "training.pop_size": st.sampled_from([1, 3]),
                "algorithm.lr": st.sampled_from([1e-5, 3e-5]),
            },
        ),
    },
)


@st.composite
def stacks(draw):
    rows = draw(st.sampled_from([ROWS, ROWS + "a,b\n", ROWS.replace("\n", "\r\n")]))
    source = draw(st.sampled_from([REWARD, REWARD + "# a comment\n", REWARD.replace("-1", "0")]))
    stack = Stack().dataset(rows=rows).reward(source=source)
    for name in draw(st.lists(st.sampled_from(["one", "two", "three"]), unique=True, max_size=3)):
        base = draw(st.sampled_from([None, *(a.name for a in stack.resources if a.kind == "experiment")]))
        fields = draw(EXPERIMENTS)
        if named := fields.get("lifecycle", {}).get("on_change"):
            fields["distinct"] = distinct_of({"manifest": manifest(fields.get("set"))}, named)
        stack.experiment(name, base=base, **fields)
        if draw(st.booleans()):
            stack.deployment(
                name, experiment=name, checkpoint=draw(st.sampled_from(["best", "step_10", "@champion"]))
            )
    return stack


SCRIPTS = st.sampled_from(
    [
        RunScript.completes(),
        RunScript.stays_queued(),
        RunScript.stays_running(step=50),
        RunScript.fails(step=50, checkpoint=True),
    ]
)
ALLOW = frozenset({"interrupt"})


def applied(world, stack):
    planned = plan(world, stack.state(), target="local", allow=ALLOW)
    assume(
        all(change.reason != "move_of_held_run" for change in planned.changes)
    )  # refused, by a rule of its own
    apply(world, planned, stack.state(), Consent.APPROVED)
    return planned
