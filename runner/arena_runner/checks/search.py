"""The form in which a reward pays a right answer more than a wrong one, looked for when no usual form is paid so.

The reward is the guide: what its source looks for is put before, after and around what it pays best, and whatever is
paid more is taken further. Bounded by calls, not by time, so that a verdict is the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, zip_longest

from arena_runner.checks.bench import TOLERANCE, Bench, Liked, known, means
from arena_runner.checks.mutants import Task, drawn

STARTS, OWN, ROUNDS, TRIED = 2, 4, 3, 300
"""forms to begin with, the reward's own among the rest, steps, and forms tried in a step"""
ONE = "{final}"


def searched(
    bench: Bench, tasks: Sequence[Task], liked: Sequence[Liked], marks: Sequence[str]
) -> Liked | None:
    """A form that tells right from wrong, or None where none was found.

    Args:
        bench: Scores.
        tasks: What to ask; the first guides the search, all of them decide.
        liked: The forms tried so far, the best first.
        marks: Literals of the reward's source.
    """
    own = [one for one in liked[STARTS:] if "its own pattern" in one.name and ONE in one.form]
    best = [(one.right, one.form) for one in (*liked[:STARTS], *own[:OWN])]
    best.append((min(score for score, _ in best), ONE))
    seen = {form for _, form in best}
    for _ in range(ROUNDS):
        each = [[step for step in _steps(form, marks) if step not in seen] for _, form in best]
        in_turn = chain.from_iterable(zip_longest(*each))  # none is crowded out
        steps = [step for step in dict.fromkeys(in_turn) if step is not None and drawn(step)][:TRIED]
        seen.update(steps)
        paid = bench.dress(tasks[0], {step: step for step in steps}, right=True)
        wrong = bench.dress(tasks[0], {step: step for step in steps}, right=False)
        telling = [step for step in steps if known(paid[step]) > known(wrong[step]) + TOLERANCE]
        if telling:
            found = means(bench, tasks, {f"as {step!r}": step for step in telling[:STARTS]})
            if told := [one for one in found if one.tells]:
                return told[0]
        better = [(paid[step], step) for step in steps if known(paid[step]) > max(best)[0] + TOLERANCE]
        best = sorted(better, reverse=True)[:STARTS] or best[:1]
        if not better:
            return None
    return None


def _steps(form: str, marks: Sequence[str]) -> Iterator[str]:
    """A form with one or two more marks."""
    escaped = [mark.replace("{", "{{").replace("}", "}}") for mark in marks]
    for mark in escaped:
        yield f"{mark}{form}"
        yield f"{mark}\n{form}"
        yield f"{form}\n{mark}"
        yield f"{form} {mark}"
        yield f"{mark}: {form}"
        if ONE in form and re.fullmatch(r"[\w-]+", mark):
            for inner in (f"<{mark}>{ONE}</{mark}>", f"{mark}: {ONE}", f"{mark}={ONE}"):
                yield form.replace(ONE, inner)
    for first, second in pairwise(escaped):
        yield f"{first}\n{form}\n{second}"
        yield f"{first}{form}{second}"
