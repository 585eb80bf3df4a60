"""Every rule of evolution: places, elite, own values, ranges, seeds."""

import math
from collections import Counter
from dataclasses import dataclass

import pytest

from arena_runner.population.lineage import Rules, evolve, paired_se, standard_error
from arena_runner.population.member import Member
from arena_runner.population.mutate import Odds, mutate, stepped
from arena_runner.population.tournament import fittest, parents


@dataclass(frozen=True)
class Range:
    min: float
    max: float
    grow_factor: float = 1.2
    shrink_factor: float = 0.8


LR = {"lr": Range(1e-7, 1e-2)}
ALWAYS = Odds(no_mut=0, rl_hp_mut=1)
NEVER = Odds(no_mut=1, rl_hp_mut=0)


def rules(**changes):
    return Rules(**{"tournament_size": 2, "elitism": True, "odds": ALWAYS, "ranges": LR, "seed": 7} | changes)


def places(*lrs):
    return [Member(i, {"lr": lr}, step=10 * i, iteration=i, cursor=5 * i) for i, lr in enumerate(lrs)]


def generations(members, scores, rule, count=40):
    return [evolve(members, scores, rule, g) for g in range(1, count + 1)]


def test_the_elite_keeps_its_place_and_passes_unchanged():
    members = places(1e-4, 2e-4, 4e-4)

    evolved = generations(members, [[1.0], [3.0], [2.0]], rules())

    assert all(e.members[1] == members[1] for e in evolved)
    assert all(place != 1 for e in evolved for _, place in e.copies)


def test_a_place_that_wins_its_own_tournament_is_left_alone():
    members = places(1e-4, 2e-4, 4e-4)

    evolved = generations(members, [[1.0], [3.0], [2.0]], rules(elitism=False))

    left = [(e, r) for e in evolved for r in e.records if r.parent == r.member]
    assert left
    assert all(r.mutation is None and e.members[r.member] == members[r.member] for e, r in left)


def test_an_overwritten_place_keeps_its_own_counters_and_takes_the_parents_hyperparameters():
    members = places(1e-4, 2e-4)

    evolved = generations(members, [[1.0], [3.0]], rules(odds=NEVER))

    copied = next(e for e in evolved if e.copies)
    assert copied.copies == ((1, 0),)
    assert copied.members[0] == Member(0, {"lr": 2e-4}, step=0, iteration=0, cursor=0)


def test_a_mutation_starts_from_the_parents_own_value():
    members = places(1e-4, 2e-4, 4e-4)

    evolved = generations(members, [[1.0], [3.0], [2.0]], rules())

    mutated = [r for e in evolved for r in e.records if r.mutation]
    assert {r.parent for r in mutated} == {1, 2}
    assert all(r.old == members[r.parent].hyperparameters["lr"] for r in mutated)
    assert all(r.new in {r.old * 1.2, r.old * 0.8} for r in mutated)


def test_the_new_value_is_the_one_the_place_trains_with():
    evolved = generations(places(1e-4, 2e-4), [[1.0], [3.0]], rules())

    assert all(
        e.members[r.member].hyperparameters[r.mutation] == r.new
        for e in evolved
        for r in e.records
        if r.mutation
    )


def test_growing_and_shrinking_are_equally_likely():
    draws = [mutate({"lr": 1e-3}, LR, ALWAYS, seed=1, generation=g, place=0) for g in range(400)]

    grown = sum(m.new > m.old for m in draws)
    assert 160 < grown < 240


@pytest.mark.parametrize(
    ("old", "grow", "new"),
    [
        (4, True, 5),
        (4, False, 3),
        (1, True, 2),
        (10, True, 12),
        (10, False, 8),
        (2, False, 1),
        (16, True, 16),
    ],
)
def test_integers_are_rounded_away_from_the_old_value_and_clamped(old, grow, new):
    value = stepped(old, Range(1, 16), grow=grow)

    assert (value, type(value)) == (new, int)


def test_floats_are_clamped_to_their_range():
    assert stepped(0.95, Range(0.1, 1.0), grow=True) == 1.0
    assert stepped(0.11, Range(0.1, 1.0), grow=False) == 0.1


@pytest.mark.parametrize(("old", "new"), [(16, 12), (2, 3)])
def test_a_draw_that_cannot_change_takes_the_other_direction(old, new):
    drawn = {
        mutate({"n": old}, {"n": Range(2, 16)}, ALWAYS, seed=3, generation=g, place=0).new for g in range(30)
    }

    assert drawn == {new}


def test_a_range_of_one_value_mutates_nothing():
    assert mutate({"n": 4}, {"n": Range(4, 4)}, ALWAYS, seed=3, generation=1, place=0) is None


def test_probabilities_are_weights_over_what_text_can_mutate():
    odds = Odds(no_mut=0.1, rl_hp_mut=0.6)

    mutated = sum(
        mutate({"lr": 1e-3}, LR, odds, seed=5, generation=g, place=1) is not None for g in range(1000)
    )

    assert 1000 * 6 / 7 - 50 < mutated < 1000 * 6 / 7 + 50


def test_every_mutable_entry_is_drawn():
    ranges = {"lr": Range(1e-7, 1), "beta": Range(0, 1), "group_size": Range(2, 16)}
    parent = {"lr": 1e-3, "beta": 0.1, "group_size": 8}

    drawn = Counter(mutate(parent, ranges, ALWAYS, seed=5, generation=g, place=1).name for g in range(300))

    assert set(drawn) == set(ranges)
    assert min(drawn.values()) > 60


def test_same_seed_same_evolution_and_another_seed_another():
    members, scores = places(*[1e-4] * 6), [[float(i)] for i in range(6)]

    assert generations(members, scores, rules()) == generations(members, scores, rules())
    assert generations(members, scores, rules()) != generations(members, scores, rules(seed=8))


def test_a_place_draws_its_own_tournament_whatever_the_others_hold():
    few = parents([1.0, 5.0, 3.0, 2.0], tournament_size=2, elitism=False, seed=1, generation=1)
    other = parents([1.0, 5.0, 3.0, 2.5], tournament_size=2, elitism=False, seed=1, generation=1)

    assert few == other


def test_without_an_elite_the_best_may_be_lost():
    fitness = [1.0, 5.0, 3.0, 2.0]
    chosen = [parents(fitness, tournament_size=2, elitism=False, seed=1, generation=g) for g in range(50)]

    assert {1 in p for p in chosen} == {True, False}


def test_a_place_is_only_overwritten_by_a_fitter_one():
    fitness = [1.0, 5.0, 3.0, 2.0]
    chosen = [parents(fitness, tournament_size=2, elitism=True, seed=1, generation=g) for g in range(50)]

    assert all(fitness[parent] >= fitness[place] for p in chosen for place, parent in enumerate(p))
    assert {p[0] for p in chosen} == {1, 2, 3}


def test_nan_never_wins_and_ties_go_to_the_lowest_place():
    assert fittest([math.nan, 1.0, 1.0]) == 1
    assert set(parents([math.nan, 1.0], tournament_size=8, elitism=True, seed=1, generation=1)) == {1}


def test_a_diverged_member_is_recorded_without_a_fitness():
    evolved = generations(places(1e-4, 2e-4), [[math.nan] * 2, [3.0, 3.0]], rules())

    record = next(e for e in evolved if e.copies).records[0]
    assert (record.fitness, record.parent_fitness, record.paired_se) == (None, 3.0, None)


def test_a_record_states_fitness_of_both_and_the_paired_standard_error():
    members, scores = places(1e-4, 2e-4), [[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]]

    record = next(e for e in generations(members, scores, rules()) if e.copies).records[0]

    assert (record.member, record.parent, record.fitness, record.parent_fitness) == (0, 1, 0.5, 1.0)
    assert record.paired_se == pytest.approx(math.sqrt(1 / 3 / 4))


def test_standard_errors_of_known_samples():
    assert standard_error([2.0]) == 0.0
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)
    assert paired_se([1.0, 2.0, 3.0], [0.0, 1.0, 2.0]) == 0.0


def test_counters_of_a_place_go_on_after_each_iteration():
    member = Member(0, {}).after_iteration(prompts=4, steps=32, signal=False)

    assert member == Member(0, {}, step=32, iteration=1, cursor=4, silent=1)
    assert member.after_iteration(prompts=4, steps=32, signal=True).silent == 0
