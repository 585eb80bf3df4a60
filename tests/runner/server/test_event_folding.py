"""Events become figures for people and points for MLflow; what a resumed segment repeats changes nothing."""

from arena_gitops.spec.job import JOB_EVENT, Evolution, MemberStatus
from arena_runner.server import curves
from arena_runner.server.points import WHOLE_RUN, Point, fresh, points
from arena_runner.server.summary import Summary, fold


def event(type_, **fields):
    return JOB_EVENT.validate_python({"type": type_, "seq": 1, "ts": 2.5, **fields})


def progress(member, step, reward):
    more = {"max_steps": 64, "iteration": step // 8, "tokens_per_second": 1.0, "eta_seconds": None}
    return event("progress", member=member, step=step, reward=reward, **more)


def evolution(generation, fitness=0.5):
    record = {"generation": generation, "step": 8 * generation, "parent": 1, "mutation": "lr"}
    record |= {"old": 0.1, "new": 0.2, "parent_fitness": 0.6}
    records = [{**record, "member": m, "fitness": fitness} for m in (0, 1)]
    return event("evolution", generation=generation, records=records)


def folded(*events):
    summary = Summary()
    for one in events:
        summary = fold(summary, one)
    return summary


def test_the_step_of_a_run_is_its_least_advanced_members():
    summary = folded(progress(0, 16, 0.1), progress(1, 8, 0.2))
    assert summary.step == 8


def test_a_members_newest_figures_count_and_its_fitness_stays():
    fitness = event("evaluation", member=0, step=8, generation=1, fitness=0.7)
    (member,) = folded(progress(0, 8, 0.1), fitness, progress(0, 16, 0.3)).members
    assert member == MemberStatus(
        member=0, step=16, iteration=2, reward=0.3, fitness=0.7, tokens_per_second=1.0, eta_seconds=None
    )


def test_lineage_keeps_its_first_record():
    summary = folded(evolution(1), evolution(2), evolution(2, fitness=0.9))
    assert [(r.generation, r.member, r.fitness) for r in summary.lineage] == [
        (1, 0, 0.5),
        (1, 1, 0.5),
        (2, 0, 0.5),
        (2, 1, 0.5),
    ]


def test_of_test_scores_the_newest_of_a_label_counts():
    def scored(label, mean):
        scores = {"label": label, "rows": 128, "mean": {"reward": mean}, "stderr": {"reward": 0.01}}
        return event("test_scores", scores=scores)

    summary = folded(scored("base", 0.1), scored("best", 0.2), scored("best", 0.3))
    assert [(s.label, s.mean["reward"]) for s in summary.test_scores] == [("base", 0.1), ("best", 0.3)]


def test_metrics_become_points_of_their_member_and_odd_names_are_made_safe():
    found = list(points(event("metrics", member=2, step=8, values={"reward/mean": 0.5, "kl:x": 0.1})))
    assert found == [Point(2, "reward/mean", 8, 0.5, 2500), Point(2, "kl_x", 8, 0.1, 2500)]


def test_metrics_of_no_member_belong_to_the_run():
    (point,) = points(event("metrics", member=None, step=8, values={"memory/peak_gib": 1.5}))
    assert point.member == WHOLE_RUN


def test_a_generation_becomes_the_populations_best_and_mean():
    keys = {p.key: p.value for p in points(evolution(3)) if p.member == WHOLE_RUN}
    assert keys == {"fitness/best": 0.5, "fitness/mean": 0.5, "generation": 3.0}


def test_a_generation_nobody_was_scored_in_has_no_best():
    record = {"generation": 1, "step": 8, "member": 0, "parent": 0, "mutation": None}
    unscored = Evolution(
        seq=1, ts=0, generation=1, records=({**record, "fitness": None, "parent_fitness": None},)
    )
    assert {p.key for p in points(unscored)} == {"lineage/parent"}


def test_only_points_beyond_what_a_series_has_reached_are_fresh():
    known = {(0, "loss"): 16}
    new = fresh([Point(0, "loss", step, 0.1, 0) for step in (8, 16, 24, 24)], known)
    assert [point.step for point in new] == [24]
    assert known == {(0, "loss"): 24}


def test_the_curves_take_a_repeated_step_once(tmp_path):
    events = [progress(0, 8, 0.1), progress(0, 16, 0.2), progress(0, 16, 0.9)]
    reward, fitness = curves.collect(events)
    assert (reward, fitness) == ({0: [(8, 0.1), (16, 0.2)]}, {})
    picture = tmp_path / "population.png"
    curves.draw(picture, "exp v1", reward, fitness, evolution(1).records)
    assert picture.read_bytes().startswith(b"\x89PNG")
