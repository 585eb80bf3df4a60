"""Fewer steps while a run trains: it ends there, judged and exported as if it had been asked for from the beginning."""


def steps(lab, number):
    return lab.job("GRPO", training={"max_steps": number})


def test_it_ends_as_one_that_was_asked_for_so_many_from_the_beginning(lab):
    short, long = steps(lab, 32), steps(lab, 96)
    asked = lab.run(short, "asked")
    capped = lab.run(long, "capped", cap_at=32, cap_after=1)
    assert capped.finished.state == "completed"
    assert capped.finished.message == ""
    ends = [
        [(e.checkpoint.label, e.checkpoint.digest) for e in recorder.of("checkpoint")]
        for recorder in (asked, capped)
    ]
    assert ends[0] == ends[1]
    assert [e.fitness for e in capped.of("evaluation")] == [e.fitness for e in asked.of("evaluation")]
    assert "32 steps are asked for now, not 96" in [e.message for e in capped.of("log")]


def test_with_more_behind_it_than_is_asked_for_it_ends_at_once_and_is_judged(lab):
    capped = lab.run(steps(lab, 96), "behind", cap_at=8, cap_after=2)
    steps_done = {e.step for e in capped.of("progress")}
    assert (capped.finished.state, max(steps_done)) == ("completed", capped.of("evaluation")[-1].step)
    assert max(steps_done) < 96
