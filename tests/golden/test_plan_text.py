"""What people see. After a wanted change: `UPDATE_GOLDEN=1 pytest tests/golden`, then read the diff."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from stacks import REWARD, ROWS, Stack, small

from arena_gitops.app import Consent, World, apply, plan, plan_offline
from arena_gitops.apply.inspection import Inspection
from arena_gitops.errors import Diagnostic, Severity, Span
from arena_gitops.plan.scope import Scope
from arena_gitops.plan.scores import ScoreDiff, ScorePair
from arena_gitops.plan.upstream import WHOLE
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report import markdown, text
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import CheckSummary, Tier
from arena_gitops.state import Import, Policy

PLANS = Path(__file__).parent / "plans"
MEDIUM = Tier(id="arena-medium", num_cpus=8, ram_gb=32, credits_per_node_hour=2.41)
PAID = {"tier": "arena-medium", "num_nodes": 2, "budget": {"max_runtime_s": 21600.0}}


def world(runs=None, **kwargs):
    return World(MemoryPlatform(runs=runs, tiers=[MEDIUM], **kwargs), parallel=1)  # etags in one order


def planned(before, after, runs=None, *, allow=frozenset(), scope=WHOLE, checks=None, **kwargs):
    """The plan of `after` where `before` has been applied."""
    here = world(runs, **kwargs)
    for stack in before:
        apply(here, plan(here, stack.state(), target="prod"), stack.state(), Consent.APPROVED)
    return plan(here, after.state(), target="prod", allow=allow, scope=scope, checks=checks)


def new_data():
    stack = small(**PAID).dataset(rows=ROWS + "What is 1 + 2?,#### 3\n")
    return stack.experiment(**PAID).deployment()


def new_reward():
    source = "def reward(question, answer, completion):\n    return 1.0\n"
    return small(**PAID).reward(source=source).experiment(**PAID).deployment()


def many_runs():
    """Thirty at work, and one that has a new owner."""
    stack = Stack().dataset().reward()
    for number in range(30):
        stack.experiment(f"e{number:02}", set={"mutation.rand_seed": number})
    return stack


def nothing_left():
    return Stack(
        notes=(
            Diagnostic(
                "roots names a folder that is empty",
                "empty-root",
                Span("arena.yaml", 4, 1),
                severity=Severity.WARNING,
            ),
        )
    )


def commented():
    source = "# what is it worth?\n" + REWARD.replace("return", "# the last word\n    return")
    return small(**PAID).reward(source=source).experiment(**PAID).deployment()


def edited_rows():
    """A category, a key that is gone, one that changed, two that came."""
    lines = [f"What is {n} + {n}?,#### {2 * n},{'easy' if n < 10 else 'hard'}" for n in range(20)]
    old = "question,answer,level\n" + "\n".join(lines) + "\n"
    lines[3] = "What is 3 + 3?,#### 7,easy"
    fresh = [
        "Add one million two hundred thousand to itself.,#### 2400000,hard",
        "What is 1 + 2?,#### 3,easy",
    ]
    new = "question,answer,level\n" + "\n".join(lines[1:] + fresh) + "\n"
    return tuple(small().dataset(rows=rows).experiment(**PAID).deployment() for rows in (old, new))


def scored():
    """Recorded by arena check --run, of the very contents that are compared."""
    old, new = (s.resources[Address("reward", "exact")].spec["files"] for s in (small(), new_reward()))
    pairs = (
        ScorePair(sample="case 1: '#### 4'", expect=1.0, old=1.0, new=1.0),
        ScorePair(sample="case 2: 'I do not know'", expect=0.0, old=0.0, new=1.0),
        ScorePair(
            sample="probe 1: an empty completion", old=0.0, new_error="IndexError: list index out of range"
        ),
    )
    diff = ScoreDiff(address="reward/exact", old_files=old, new_files=new, pairs=pairs)
    summary = CheckSummary(passed=3, warned=0, failed=0)
    return Inspection(stack="team", ran=True, inputs={}, results=(), summary=summary, rewards=(diff,))


def fitted(gpu, name="HuggingFaceTB/SmolLM2-1.7B-Instruct"):
    """A model that everybody knows, on one GPU."""
    here = World(MemoryPlatform(tiers=[MEDIUM.model_copy(update={"num_gpus": 1, "gpu_type": gpu})]))
    stack = small(model={"id": name, "revision": None}, **PAID)
    return plan(here, stack.state(), target="prod")


def imported(stack, *, as_is=False):
    """What commands have made, and a repository that takes it over."""
    here, made = world(), small(**PAID)
    made.name = "imperative"
    made.project("somebody-elses")
    apply(here, plan(here, made.state(), target="prod"), made.state(), Consent.APPROVED)
    wanted = {address: Import(address.name, as_is) for address in stack.resources}
    return plan(here, replace(stack.state(), imports=wanted), target="prod")


SITUATIONS = {
    "comment_in_a_reward": lambda: planned([small(**PAID)], commented()),
    "edited_rows": lambda: planned(edited_rows()[:1], edited_rows()[1]),
    "reward_with_scores": lambda: planned([small(**PAID)], new_reward(), checks=scored()),
    "estimate": lambda: planned(
        [small(**PAID)],
        small(set={"algorithm.lr": 3e-5}, **PAID),
        RunScript.completes(step_s=4.5),
    ),
    "migrate": lambda: planned(
        [small(**{**PAID, "num_nodes": 1})], small(**PAID), RunScript.stays_running(step=320)
    ),
    "fits": lambda: fitted("H100"),
    "may_not_fit": lambda: fitted("T4"),
    "does_not_fit": lambda: fitted("T4", "Qwen/Qwen3-8B"),
    "first": lambda: planned([], small(**PAID)),
    "unchanged": lambda: planned([small(**PAID)], small(**PAID)),
    "new_version": lambda: planned([small(**PAID)], small(set={"algorithm.lr": 3e-5}, **PAID)),
    "reuse": lambda: planned(
        [small(**PAID), small(set={"algorithm.lr": 3e-5}, **PAID)], small(description="as before", **PAID)
    ),
    "resume": lambda: planned([small(**PAID)], small(set={"training.max_steps": 2000}, **PAID)),
    "satisfied": lambda: planned([small(**PAID)], small(set={"training.max_steps": 500}, **PAID)),
    "metadata": lambda: planned([small(**PAID)], small(owner="rl-team", labels={"team": "rl"}, **PAID)),
    "stale_dataset": lambda: planned([small(**PAID)], new_data()),
    "new_reward": lambda: planned([small(**PAID)], new_reward()),
    "retire": lambda: planned(
        [small(**PAID)], small().without("deployment/words").without("experiment/words-grpo")
    ),
    "destroy": lambda: planned(
        [small(**PAID)], small(**PAID), RunScript.stays_running(step=320), scope=Scope(destroy=True)
    ),
    "destroy_purge": lambda: planned(
        [small(**PAID)],
        small(**PAID).without("deployment/words"),
        scope=Scope(destroy=True, purge=True, select=("experiment/words-grpo+",)),
    ),
    "destroy_in_the_way": lambda: planned(
        [small(lifecycle={"protect": True}, **PAID)],
        small(lifecycle={"protect": True}, **PAID),
        scope=Scope(destroy=True, select=("dataset/words", "experiment/words-grpo")),
    ),
    "destroy_nothing": lambda: planned([], small(**PAID), scope=Scope(destroy=True)),
    "import": lambda: imported(small(description="as code", **PAID)),
    "import_differs": lambda: imported(small(set={"algorithm.lr": 3e-5}, **PAID)),
    "import_as_is": lambda: imported(small(set={"algorithm.lr": 3e-5}, **PAID), as_is=True),
    "shared_run": lambda: planned(
        [small(**PAID)], small(**PAID).experiment("twin", **PAID), RunScript.stays_running(step=320)
    ),
    "shared_run_stays": lambda: planned(
        [small(**PAID).experiment("twin", **PAID)],
        small(set={"algorithm.lr": 3e-5}, **PAID).experiment("twin", **PAID),
        RunScript.stays_running(step=320),
    ),
    "open_reward": lambda: planned(
        [],
        Stack(policy=Policy(reward_network="forbid", reward_secrets=("JUDGE_KEY",)))
        .dataset()
        .reward(network="full", secrets=["JUDGE_KEY", "OTHER_KEY"])
        .experiment(**PAID),
    ),
    "many_held": lambda: planned([many_runs()], many_runs(), RunScript.fails("no memory")),
    "many_running": lambda: planned([many_runs()], many_runs(), RunScript.stays_running(step=320)),
    "empty_repository": lambda: planned([small()], nothing_left()),
    "running": lambda: planned([small(**PAID)], small(**PAID), RunScript.stays_running(step=320)),
    "interrupt": lambda: planned(
        [small(**PAID)], small(set={"training.pop_size": 4}, **PAID), RunScript.stays_running(step=320)
    ),
    "rerun": lambda: planned(
        [small(rerun=0, **PAID)],
        small(rerun=1, **PAID),
        RunScript.fails("ValueError: no number in the answer", step=64),
    ),
    "rerun_stale": lambda: planned([small(**PAID)], new_data(), scope=Scope(rerun_stale=("dataset/words",))),
    "select": lambda: planned(
        [small(rerun=0, **PAID)],
        small(rerun=0, set={"algorithm.lr": 3e-5}, **PAID),
        scope=Scope(select=("experiment/words-grpo",), rerun=("experiment/words-grpo",)),
    ),
    "select_without_parent": lambda: planned([], small(**PAID), scope=Scope(select=("deployment/words",))),
    "offline": lambda: plan_offline(
        small(set={"algorithm.lr": 3e-5}, **PAID).state(),
        small(**PAID).state(),
        target="prod",
        against="git:origin/main",
    ),
    "offline_unchanged": lambda: plan_offline(
        small().state(), small().state(), target="prod", against="git:origin/main"
    ),
    "guardrails": lambda: planned(
        [small(**PAID)],
        Stack(policy=Policy(max_credits_increase=10.0, max_credits_increase_percent=50.0))
        .project()
        .dataset()
        .reward()
        .experiment(**{**PAID, "budget": {"max_runtime_s": 43200.0}}, set={"algorithm.lr": 3e-5})
        .deployment(),
        RunScript.stays_running(step=320),
        balance=40.0,
    ),
    "epochs": lambda: planned([], small(set={"training.num_epochs": 3}, **PAID)),
    "move": lambda: planned(
        [small(**PAID)],
        Stack()
        .project()
        .dataset()
        .reward()
        .experiment("words-new", **PAID)
        .deployment(experiment="words-new"),
        RunScript.stays_running(step=320),
    ),
    "failed_is_held": lambda: planned(
        [small(**PAID)], small(**PAID), RunScript.fails("ValueError: no number in the answer", step=64)
    ),
    "policy": lambda: planned(
        [],
        Stack(policy=Policy(10.0, ("arena-small",), require_owner=True))
        .dataset()
        .reward()
        .experiment(**PAID),
    ),
    "without_room": lambda: planned([], small(), algorithms=("SFT",), max_steps=600),
    "unknown_cost": lambda: planned(
        [],
        Stack(
            notes=(
                Diagnostic(
                    "mutation.mutation_sd has no effect: text training mutates hyperparameters only",
                    "not-acted-on",
                    Span("manifests/words-grpo.yaml", 27, 5),
                    severity=Severity.NOTE,
                ),
            )
        )
        .dataset()
        .reward()
        .experiment(tier="a100")
        .experiment("words-long", tier="arena-medium", set={"training.max_steps": 90_000})
        .deployment(checkpoint="@champion", gate={"metric": "eval/reward", "min": 0.6, "min_delta": 0.02}),
        max_steps=600,
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_plan_reads_as_it_did(name):
    check(PLANS / f"{name}.txt", text.render(SITUATIONS[name]()))


def test_a_pull_request_comment_reads_as_it_did():
    plan_ = planned([small(**PAID)], small(set={"algorithm.lr": 3e-5}, description="a | b @all <b>", **PAID))
    check(PLANS / "comment.md", markdown.render(plan_))


@pytest.mark.parametrize(
    "name",
    [
        "first",
        "unchanged",
        "new_reward",
        "edited_rows",
        "stale_dataset",
        "interrupt",
        "move",
        "policy",
        "guardrails",
        "failed_is_held",
        "retire",
        "destroy",
        "destroy_purge",
        "import",
        "import_differs",
        "select_without_parent",
    ],
)
def test_a_plan_in_markdown_reads_as_it_did(name):
    check(PLANS / f"{name}.md", markdown.render(SITUATIONS[name]()))


def test_a_comment_of_an_offline_plan_reads_as_it_did():
    check(PLANS / "comment_offline.md", markdown.render(SITUATIONS["offline"]()))


def test_on_a_terminal_long_lines_go_on_under_their_beginning():
    check(PLANS / "terminal_of_80.txt", text.render(SITUATIONS["guardrails"](), width=80))


def check(path, found):
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8")
