"""Diffs of code: short, bounded, and of what was applied last."""

from stacks import REWARD, small

from arena_gitops.plan.code import COMPARED_LINES, SHOWN_LINES, file_diff

OTHER = REWARD.replace("-1", "0")


def test_a_diff_shows_what_went_and_what_came():
    found = file_diff("r.py", b"a = 1\nb = 2\n", b"a = 1\nb = 3\n")
    assert (found.added, found.removed, found.cosmetic) == (1, 1, False)
    assert found.lines[1:] == (" a = 1", "-b = 2", "+b = 3")


def test_a_long_diff_is_cut_and_says_so():
    found = file_diff("r.py", b"", b"x = 1\n" * 500)
    assert len(found.lines) == SHOWN_LINES
    assert found.omitted == 501 - SHOWN_LINES


def test_what_is_too_long_or_no_text_is_not_compared():
    assert "more than" in file_diff("r.py", b"", b"\n" * (COMPARED_LINES + 1)).note
    assert file_diff("r.bin", b"\xff", b"").note == "is no text"


def test_a_plan_shows_the_code_of_a_reward_that_changed(scene):
    here = scene().applied(small())
    stack = small().reward(source=OTHER).experiment().deployment()
    (file,) = here.change(stack, "reward/exact").code
    assert file.path == "rewards/exact.py"
    assert [line[:1] for line in file.lines] == ["@", " ", "-", "+"]
    assert here.change(stack).code == ()  # once, at the reward


def test_a_diff_starts_from_what_was_applied_last_not_from_what_was_trained(scene):
    comment = small().reward(source=REWARD + "# one\n").experiment().deployment()
    here = scene().applied(small(), comment)
    (file,) = here.change(
        small().reward(source=REWARD + "# two\n").experiment().deployment(), "reward/exact"
    ).code
    assert {"-# one", "+# two"} <= set(file.lines)


def test_what_nobody_changed_is_not_read(scene):
    here = scene().applied(small())
    read = []
    here.platform.read_blob = lambda digest, **_: read.append(digest)
    here.plan(small(set={"algorithm.lr": 3e-5}))
    assert read == []
