"""The whole loop with a real tiny model: it learns, evolves, evaluates, exports and ends by its rules."""

import json
from itertools import pairwise

import pytest
import torch

from arena_runner import ops
from arena_runner.opening import open_parts
from arena_runner.packing import Group, pack
from arena_runner.peft_format import read
from arena_runner.ports import Stop

EVOLVING = {
    "training": {"max_steps": 10_000, "evo_steps": 2, "pop_size": 3, "hpo": True},
    "mutation": {
        "probabilities": {"no_mut": 0.0, "rl_hp_mut": 1.0},
        "rl_hp_selection": {
            "batch_size": {"min": 1, "max": 4},
            "group_size": {"min": 2, "max": 6},
            "temperature": {"min": 0.5, "max": 1.5},
        },
    },
}


@pytest.fixture(scope="module")
def evolved(module_lab):
    """Five generations of three members, read by several tests."""
    return module_lab.run(module_lab.job("GRPO", **EVOLVING), stop_after=11, why=Stop.ASKED)


def test_grpo_improves_a_dense_reward(lab):
    ended = lab.run(
        lab.job("GRPO", algorithm={"batch_size": 4, "group_size": 8}, training={"max_steps": 32 * 14})
    )

    base, best = (event.scores.mean["reward"] for event in ended.of("test_scores"))
    assert ended.finished.state == "completed"
    assert best > base + 0.2


def test_sft_lowers_nats_per_token(lab):
    ended = lab.run(lab.job("SFT", training={"max_steps": 80}))

    fitness = [event.fitness for event in ended.of("evaluation")]
    assert fitness[-1] > fitness[0] + 0.5
    assert ended.of("test_scores")[1].scores.mean["reward"] > ended.of("test_scores")[0].scores.mean["reward"]


def test_dpo_learns_which_answer_is_preferred(lab):
    ended = lab.run(lab.job("DPO", training={"max_steps": 96}))
    fitness = [e.fitness for e in ended.of("evaluation")]
    base, best = (e.scores for e in ended.of("test_scores"))

    assert fitness[-1] == 1.0
    assert (base.mean["reward"], best.mean["reward"]) == (
        0.5,
        1.0,
    )  # the base has no preference: ties count half


def test_generations_hold_clones_and_mutations(evolved):
    records = [record for event in evolved.of("evolution") for record in event.records]

    assert len(evolved.of("evolution")) == 5
    assert any(record.parent != record.member for record in records)
    assert {record.mutation for record in records} - {None}
    assert [event.generation for event in evolved.of("evolution")] == [1, 2, 3, 4, 5]


def test_a_mutated_value_is_the_one_trained_with(evolved):
    """Every mutation shows in the next iteration's figures of its place."""
    for index, event in enumerate(evolved.events):
        if event.type != "evolution":
            continue
        following = {}
        for later in evolved.events[index:]:
            if later.type == "metrics" and later.member is not None:
                following.setdefault(later.member, later.values)
        for record in event.records:
            if record.mutation and record.member in following:
                assert following[record.member][f"hp/{record.mutation}"] == record.new


def test_batch_and_group_size_are_each_members_own(evolved):
    """Steps counted per iteration are batch_size times group_size, also after a mutation."""
    for member in range(3):
        metrics = [event for event in evolved.of("metrics") if event.member == member]
        steps = [0, *(event.step for event in metrics)]
        taken = [after - before for before, after in pairwise(steps)]

        assert taken == [e.values["hp/batch_size"] * e.values["hp/group_size"] for e in metrics]
    assert (
        len(
            {
                e.values["hp/batch_size"] * e.values["hp/group_size"]
                for e in evolved.of("metrics")
                if e.member is not None
            }
        )
        > 1
    )


def test_every_generation_is_decided_by_an_evaluation_at_that_point(evolved):
    fitness = {}
    for event in evolved.events:
        if event.type == "evaluation":
            fitness[event.member] = event.fitness
        elif event.type == "evolution":
            assert {r.member: r.fitness for r in event.records} == fitness
        elif event.type == "progress":
            last = event.iteration
    assert last == 11


def test_the_fittest_is_exported_at_every_evaluation(evolved):
    rounds = [e for e in evolved.of("evaluation") if e.member == 0]
    saved = [e.checkpoint for e in evolved.of("checkpoint")]

    assert len(saved) == len(rounds) == 5
    assert all(
        len(files) == 3
        for e, files in zip(evolved.events, evolved.files, strict=True)
        if e.type == "checkpoint"
    )
    best_of = [max(e.fitness for e in evolved.of("evaluation") if e.generation == g) for g in range(5)]
    assert [checkpoint.fitness for checkpoint in saved] == best_of


def test_a_run_stopped_by_its_owner_ends_stopped(evolved):
    assert (evolved.finished.state, evolved.finished.reason) == ("stopped", None)


def test_evaluation_may_be_more_frequent_than_evolution(lab):
    often = lab.job(
        "GRPO", **{**EVOLVING, "training": EVOLVING["training"] | {"evo_steps": 3, "evaluation_interval": 2}}
    )
    ended = lab.run(often, "often", stop_after=7, why=Stop.ASKED)

    assert iterations_before(ended, "evaluation") == [2, 3, 4, 6]
    assert iterations_before(ended, "evolution") == [3, 6]


def test_evaluation_may_be_rarer_than_evolution(lab):
    rare = lab.job(
        "GRPO", **{**EVOLVING, "training": EVOLVING["training"] | {"evo_steps": 2, "evaluation_interval": 5}}
    )
    ended = lab.run(rare, stop_after=6, why=Stop.ASKED)

    assert iterations_before(ended, "evaluation") == [2, 4, 5, 6]
    assert iterations_before(ended, "evolution") == [2, 4]


def iterations_before(ended, kind):
    """Iterations after which an event of this kind came, each once."""
    found, iteration = [], 0
    for event in ended.events:
        if event.type == "progress":
            iteration = event.iteration
        elif event.type == kind and iteration not in found:
            found.append(iteration)
    return found


def test_a_member_stops_at_the_first_iteration_end_at_or_past_max_steps(lab):
    ended = lab.run(lab.job("GRPO", training={"max_steps": 20}))

    assert [event.step for event in ended.of("progress")] == [8, 16, 24]


def test_checkpoint_steps_export_every_member_also_while_evolving(lab):
    job = lab.job(
        "GRPO", **{**EVOLVING, "training": EVOLVING["training"] | {"checkpoint_steps": 3, "evo_steps": 4}}
    )
    ended = lab.run(job, stop_after=3, why=Stop.ASKED)

    assert [event.checkpoint.label for event in ended.of("checkpoint")] == [
        "step_24/m0",
        "step_24/m1",
        "step_24/m2",
    ]


def test_at_the_end_every_member_is_exported_and_base_and_best_are_scored_once(lab):
    ended = lab.run(lab.job("GRPO", training={"max_steps": 16, "pop_size": 2}))

    last = {e.checkpoint.member for e in ended.of("checkpoint") if e.checkpoint.step == 16}
    scores = [event.scores for event in ended.of("test_scores")]
    assert last == {0, 1}
    assert [(s.label, s.rows) for s in scores] == [("base", 8), ("best", 8)]
    assert all(set(s.mean) == set(s.stderr) == {"reward", "vowels", "short"} for s in scores)


@pytest.mark.parametrize("algorithm", ["GRPO", "SFT", "DPO"])
def test_an_export_carries_a_probe_that_only_its_own_weights_answer(lab, algorithm):
    """The recorded logprobs are those of the exported adapter, and differ from the base model's."""
    lab.run(lab.job(algorithm, training={"max_steps": 40, "evo_steps": 5}))
    folder = next((lab.folder / "run" / "exports").glob("step_40/m0"))
    probe = json.loads((folder / "arena.json").read_text())["probe"]

    with open_parts(lab.job(algorithm), lab.materials("again"), lab.ports()) as parts:
        base = measured(parts.trained, probe)
        parts.trained.population.load(0, read(folder)[0])
        own = measured(parts.trained, probe)

    assert len(probe["token_ids"]) == len(probe["logprobs"]) > 0
    assert own == pytest.approx(probe["logprobs"], abs=1e-4)
    assert base != pytest.approx(probe["logprobs"], abs=1e-2)


def measured(learner, probe):
    """What the weights in place 0 give a probe's tokens."""
    group = Group(0, tuple(probe["prompt_ids"]), (tuple(probe["token_ids"]),), (0,))
    (piece,) = pack([group], 4096)
    with torch.no_grad():
        return ops.logprobs(learner.base, learner.population, piece, torch.ones(len(piece.rows))).tolist()


def test_the_target_ends_the_run_at_the_first_evaluation_that_reaches_it(lab):
    ended = lab.run(lab.job("GRPO", **{**EVOLVING, "training": EVOLVING["training"] | {"target_score": 0.0}}))

    assert ended.finished.state == "completed"
    assert (len(ended.of("evolution")), max(e.iteration for e in ended.of("progress"))) == (0, 2)


def test_epochs_set_the_budget(lab):
    job = lab.job("SFT", training={"num_epochs": 2, "max_steps": 2})
    ended = lab.run(job)

    assert ended.of("started")[0].max_steps == 2 * (40 - 8 - 4)


def test_without_hpo_nothing_evolves(lab):
    still = {**EVOLVING, "training": EVOLVING["training"] | {"hpo": False, "max_steps": 32}}
    ended = lab.run(lab.job("GRPO", **still))

    assert ended.of("evolution") == []
    assert len({e.values["hp/temperature"] for e in ended.of("metrics") if e.member is not None}) == 1


def test_a_population_of_one_does_not_evolve(lab):
    alone = {**EVOLVING, "training": EVOLVING["training"] | {"pop_size": 1, "max_steps": 48}}

    assert lab.run(lab.job("GRPO", **alone)).of("evolution") == []


def test_the_same_seed_is_the_same_run_and_another_seed_another(lab):
    job = lab.job("GRPO", **EVOLVING)
    first, again = (lab.run(job, name, stop_after=5, why=Stop.ASKED) for name in ("a", "b"))
    other = lab.run(lab.job("GRPO", **EVOLVING, seed=2), "c", stop_after=5, why=Stop.ASKED)

    assert figures(first) == figures(again) != figures(other)


def figures(recorder):
    """Everything a run said, without what the clock measured."""
    timed = {
        "tokens_per_second",
        "iteration_seconds",
        "memory/peak_gib",
        "memory/rss_gib",
        "memory/expected_over_peak",
    }
    told = []
    for event in recorder.events:
        body = event.model_dump(mode="json", exclude={"seq", "ts", "tokens_per_second", "eta_seconds"})
        if "values" in body:
            body["values"] = {k: v for k, v in body["values"].items() if k not in timed}
        told.append(json.dumps(body, sort_keys=True))
    return told


def test_fitness_depends_on_no_hyperparameter(lab):
    """At lr 0 the weights stay what they were, whatever else is turned."""
    changes = {
        "temperature": 0.3,
        "group_size": 2,
        "batch_size": 1,
        "clip_coef": 0.5,
        "update_epochs": 2,
        "beta": 0.1,
    }
    fitness = [
        lab.run(lab.job("GRPO", algorithm={"lr": 0.0} | change, training={"max_steps": 8}), f"run{i}")
        .of("evaluation")[0]
        .values
        for i, change in enumerate([{}, changes])
    ]

    assert fitness[0] == fitness[1]


@pytest.mark.parametrize("algorithm", ["GRPO", "SFT", "DPO"])
def test_no_row_of_the_test_split_is_trained_on_or_selects(lab, algorithm):
    with open_parts(lab.job(algorithm), lab.materials(), lab.ports()) as parts:
        train, held, test = (
            {p.ids for p in some} for some in (parts.task.prompts, parts.held.eval, parts.held.test)
        )

    assert (len(train), len(held), len(test)) == (28, 4, 8)
    assert not train & test | train & held | held & test


def test_the_servers_limit_caps_the_run_and_says_so(lab):
    job = lab.job("GRPO", training={"max_steps": 1000})
    job = job.model_copy(update={"limits": job.limits.model_copy(update={"max_steps": 16})})
    ended = lab.run(job)

    assert ended.finished.message == "capped at 16 of 1000"
    assert ended.of("progress")[-1].step == 16


@pytest.mark.parametrize("algorithm", ["GRPO", "SFT", "DPO"])
def test_the_fitness_of_a_place_does_not_depend_on_its_neighbours(lab, algorithm):
    """Bit for bit: judged alone, or beside members with other weights."""
    job = lab.job(algorithm, training={"pop_size": 3})
    with open_parts(job, lab.materials(), lab.ports()) as parts:
        population = parts.trained.population
        torch.manual_seed(0)
        for place in range(3):
            population.load(place, {k: torch.randn_like(v) for k, v in population.export(place).items()})
        together = parts.task.judge([0, 1, 2], parts.held.eval)
        alone = [parts.task.judge([place], parts.held.eval)[place] for place in range(3)]

    assert [together[place] for place in range(3)] == alone
    assert len({judged.probe.logprobs for judged in alone}) == 3


def test_eval_loop_multiplies_the_evaluation_rows(lab):
    with open_parts(lab.job("SFT", training={"eval_loop": 3}), lab.materials(), lab.ports()) as parts:
        assert (len(parts.held.eval), len(parts.held.test)) == (12, 8)
