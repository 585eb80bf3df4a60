"""Run a reward on what it will meet before a GPU waits for it: its own cases, right, wrong and absurd completions.

Everything runs in the sandbox, after a look at the source. A fault is one verdict with the user's own file and line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from arena_gitops.spec.job import RewardCase, RewardInput
from arena_gitops.spec.reward_source import suspicions
from arena_gitops.spec.secret import lacking
from arena_gitops.spec.wire import CheckResult, SampleScore
from arena_runner.checks.bench import Bench, shortened
from arena_runner.checks.effects import taken
from arena_runner.checks.mutants import forms
from arena_runner.checks.patterns import own_forms
from arena_runner.checks.reading import facts
from arena_runner.checks.telling import NOT_JUDGED, PLAIN, UNBOUNDED, Setting, judge
from arena_runner.checks.tracing import lines_run
from arena_runner.sandbox import (
    Limits,
    RewardError,
    RewardPool,
    Score,
    ScoreRow,
    from_environment,
    secret_values,
)

TOLERANCE = 1e-6
SAMPLES: Sequence[Mapping[str, str]] = (
    {"question": "What is 6 * 7?", "answer": "6 * 7 = 42\n#### 42"},
    {"question": "What is 20 - 9?", "answer": "20 - 9 = 11\n#### 11"},
    {"question": "What is half of 64?", "answer": "64 / 2 = 32\n#### 32"},
)
"""asked when there are no rows of a dataset and no cases"""
HUGE = "word " * 50_000
QUOTED = 60
"""Characters of a completion that name a sample."""
HANGS = 1
"""calls that may run into their time limit before a check stops waiting for more of them"""
GATED = ("network", "files", "process tree", "unprivileged user")
"""walls worth a warning when they do not stand"""
PROBED = 8
"""rows that right answers are probed on; on the others, right is only held against wrong"""
FEW, FEWER = 3, 1
"""rows that every form of an answer is tried on; a judge behind the network costs money"""


def probes(rows: Sequence[Mapping[str, str]]) -> list[tuple[str, ScoreRow]]:
    """Name and call: right answers in several dresses, another row's answer, and what models really emit."""
    calls: list[tuple[str, ScoreRow]] = []
    for number, row in enumerate(rows[:PROBED]):
        question, answer = row["question"], row["answer"]
        other = rows[(number + 1) % len(rows)]["answer"]
        last = answer.split()[-1] if answer.split() else answer
        completions = {
            "the gold answer": answer,
            "the gold answer in <answer> tags": f"<think>\nstep by step\n</think>\n<answer>{last}</answer>",
            "the gold answer after long reasoning": "Let me think.\n" * 200 + answer,
            "another row's answer": other,
        }
        calls += [(name, ScoreRow(question, answer, text)) for name, text in completions.items()]
    question, answer = rows[0]["question"], rows[0]["answer"]
    absurd = {
        "an empty completion": "",
        "white space": " \n\t ",
        "a huge completion": HUGE,
        "unicode": "答え は \uff14\uff12 🙂 \u202e\u0000 é",
        "malformed tags": "<answer>42<answer></think>((",
        "numbers beyond floats": "1e999 -1e999 " + "9" * 400,
        "the question itself": question,
    }
    return calls + [(name, ScoreRow(question, answer, text)) for name, text in absurd.items()]


class RewardCheck:
    """Checks one reward against its own cases and a few rows of the dataset."""

    def __init__(
        self,
        reward: RewardInput,
        files: Path,
        rows: Sequence[Mapping[str, str]] = (),
        limits: Limits | None = None,
        *,
        stored: Collection[str] | None = None,
        setting: Setting = PLAIN,
    ) -> None:
        """Prepare; `stored` are the secrets of a server, which gives their values to runs only."""
        self._reward, self._files, self._stored = reward, files, stored
        self._setting = setting
        self._rows = (
            [row for row in rows if "question" in row and "answer" in row]
            or [{"question": case.question, "answer": case.answer} for case in reward.cases]
            or list(SAMPLES)
        )
        self._limits = limits or Limits()
        self.broken = False
        """whether a verdict was that it cannot be used"""

    @property
    def _python(self) -> list[str]:
        return sorted(name for name in self._reward.files if name.endswith(".py"))

    @property
    def withheld(self) -> bool:
        """Whether its code is read only, because it names secrets."""
        return bool(self._reward.secrets) and self._stored is not None

    def score(self, rows: list[ScoreRow]) -> list[Score | RewardError]:
        """Score more completions, in a sandbox of their own."""
        with self._pool() as pool:
            return pool.score_each(rows, hangs=HANGS)

    def run(self) -> Iterator[CheckResult]:
        """Yield every verdict; stops at an import that fails."""
        yield from self._source()
        if self._stored is not None and self.withheld:
            yield self._withheld(self._stored)
            return
        try:
            with self._pool() as pool:
                yield self._result("import", "pass", f"{self._reward.entry} defines {self._reward.function}")
                yield from self._walls(pool)
                yield from self._cases(pool)
                yield from self._probes(pool)
        except RewardError as error:
            yield self._fault("import", error, "")

    def _source(self) -> Iterator[CheckResult]:
        """Read the source for what deserves a second look, before any of it runs."""
        found = 0
        for name in self._python:
            text = (self._files / name).read_text("utf-8", errors="replace")
            for suspicion in suspicions(text):
                found += 1
                yield self._result("source", "warn", str(suspicion), file=name, line=suspicion.line)
        if not found:
            yield self._result("source", "pass", "nothing in it runs text, starts programs or unpickles")

    def _withheld(self, stored: Collection[str]) -> CheckResult:
        """A check may run what a pull request proposes, so that it is shown no secret."""
        if missing := [name for name in self._reward.secrets if name not in stored]:
            return self._result("secrets", "fail", lacking(missing))
        text = "its code was read, not run: it names secrets, which only a run is given"
        return self._result("secrets", "warn", text)

    def _pool(self, *, watched: bool = False) -> RewardPool:
        secrets = secret_values(self._reward.secrets, from_environment(os.environ))
        return RewardPool(self._reward, self._files, limits=self._limits, secrets=secrets, watched=watched)

    def _walls(self, pool: RewardPool) -> Iterator[CheckResult]:
        weak = [wall for wall in pool.walls if not wall.raised and wall.name in GATED]
        for wall in weak:
            yield self._result("sandbox", "warn", f"{wall.name}: not isolated on this machine ({wall.why})")
        if not weak:
            yield self._result("sandbox", "pass", "every wall stands")

    def _cases(self, pool: RewardPool) -> Iterator[CheckResult]:
        cases = self._reward.cases
        rows = [ScoreRow(case.question, case.answer, case.completion) for case in cases]
        outcomes = pool.score_each(rows, hangs=HANGS)
        told = list(zip(range(1, len(cases) + 1), cases, outcomes, strict=True))
        verdicts = [found for one in told if (found := self._wrong(*one)) is not None]
        if cases and not verdicts:
            verdicts = [self._result("cases", "pass", f"{len(cases)} cases score as expected")]
        scores = tuple(
            _scored(f"case {number}: {case.completion[:QUOTED]!r}", outcome, case.expect)
            for number, case, outcome in told
        )
        for verdict in verdicts:
            yield verdict.model_copy(update={"scores": scores})
            scores = ()

    def _wrong(self, number: int, case: RewardCase, outcome: Score | RewardError) -> CheckResult | None:
        """Why a case is not scored as its author expects; None where it is."""
        if isinstance(outcome, RewardError):
            return self._fault("cases", outcome, f"case {number}: ")
        if math.isclose(outcome.total, case.expect, abs_tol=TOLERANCE):
            return None
        text = f"case {number}: expected {case.expect:g}, got {outcome.total:g} for {case.completion[:80]!r}"
        return self._result("cases", "fail", text, file=self._reward.entry)

    def _probes(self, pool: RewardPool) -> Iterator[CheckResult]:
        named = probes(self._rows)
        rows = [row for _, row in named]
        outcomes = pool.score_each(rows, hangs=HANGS)
        faults = _first_of_each(
            (name, outcome)
            for (name, _), outcome in zip(named, outcomes, strict=True)
            if isinstance(outcome, RewardError)
        )
        if faults:
            for name, error in faults:
                yield self._fault("probes", error, f"on {name}: ")
            return
        scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
        totals = [score.total for score in scores]
        message = f"{len(scores)} completions scored from {min(totals):g} to {max(totals):g}"
        samples = tuple(
            _scored(f"probe {number}: {name}", score)
            for number, ((name, _), score) in enumerate(zip(named, scores, strict=True), 1)
        )
        yield self._result("probes", "pass", message).model_copy(update={"scores": samples})
        bench = Bench(lambda rows: pool.score_each(rows, hangs=HANGS), self._trace)
        verdicts = list(self._judgement(bench, named, totals))
        kept = {} if self._reward.network == "full" else bench.kept
        seen = [*named, *((f"the completion {shortened(row.completion)}", row) for row in kept)]
        yield from self._repeat(seen, [*scores, *kept.values()])
        yield from verdicts

    def _repeat(self, named: Sequence[tuple[str, ScoreRow]], first: Sequence[Score]) -> Iterator[CheckResult]:
        """Score once more, in another process and in the opposite order."""
        rows = [row for _, row in named]
        with self._pool(watched=True) as other:
            again = other.score_each(rows[::-1], hangs=HANGS)[::-1]
        for (name, _), old, new in zip(named, first, again, strict=True):
            if old != new:
                told = f"{new.total:g}" if isinstance(new, Score) else new.message
                text = f"not deterministic: {name} scored {old.total:g}, then {told}"
                # A judge behind the network may waver; a function of three strings may not.
                status: Literal["warn", "fail"] = "warn" if self._reward.network == "full" else "fail"
                yield self._result("repeat", status, text, file=self._reward.entry)
                return
        yield self._result("repeat", "pass", "the same scores again in another process and order")
        calls = {
            name: score.watched
            for (name, _), score in zip(named, again, strict=True)
            if isinstance(score, Score)
        }
        for remark in taken({name: call for name, call in calls.items() if call}, self._reward.network):
            place = self._reward.entry if remark.status == "warn" else None
            yield self._result(remark.name, remark.status, remark.message, file=place)

    def _judgement(
        self, bench: Bench, named: Sequence[tuple[str, ScoreRow]], totals: Sequence[float]
    ) -> Iterator[CheckResult]:
        """Right against wrong in the reward's own form, and everything that earns nothing."""
        few = FEWER if self._reward.network == "full" else FEW
        files = [self._reward.entry, *(name for name in self._python if name != self._reward.entry)]
        sources = [(self._files / name).read_text("utf-8", errors="replace") for name in files]
        known = facts(sources, self._reward.function)
        own = own_forms(sources, known)
        remarks = list(
            judge(
                bench,
                self._rows[:PROBED] if few == FEWER else self._rows,
                forms(self._reward.cases, own),
                few=few,
                setting=replace(self._setting, facts=known),
            )
        )
        for name, error in _first_of_each(iter(bench.faults)):
            yield self._fault("probes", error, f"on {name}: ")
        if bench.hung:
            return
        seen = [*totals, *bench.totals]
        if max(seen) - min(seen) < TOLERANCE:
            found = NOT_JUDGED not in {remark.message for remark in remarks}
            judged = (found if known.reads_answer else bool(own)) or not known.reads_completion
            yield self._constant(totals[0], judged=judged)
            return
        yield from self._absurd(
            named, totals, max(bench.totals, default=-math.inf), style=not known.reads_answer
        )
        for remark in remarks:
            place = self._reward.entry if remark.status == "warn" else None
            yield self._result(remark.name, remark.status, remark.message, file=place)

    def _trace(self, rows: Sequence[ScoreRow]) -> frozenset[int]:
        return lines_run(self._reward, self._files, rows, self._limits)

    def _constant(self, total: float, *, judged: bool) -> CheckResult:
        """Nothing made a difference; that proves little where right is more than an answer in a dress."""
        if not judged:
            text = (
                f"not judged: every completion tried scored {total:g}; a case with a good one would show more"
            )
            return self._result("signal", "pass", text)
        text = f"every completion, right or wrong, scored {total:g}: training would have no signal"
        text += "" if self._reward.cases else " (a case with a right completion shows its form)"
        return self._result("signal", "warn", text, file=self._reward.entry)

    def _absurd(
        self, named: Sequence[tuple[str, ScoreRow]], totals: Sequence[float], best: float, *, style: bool
    ) -> Iterator[CheckResult]:
        """Something absurd that is paid more than the right answer in any dress; much more, where style is paid."""
        right = [t for (name, _), t in zip(named, totals, strict=True) if name.startswith("the gold")]
        wrong = [t for (name, _), t in zip(named, totals, strict=True) if not name.startswith("the gold")]
        most = max(*right, best)
        if max(wrong) > (UNBOUNDED * max(1.0, *right) if style else most + TOLERANCE):
            name = next(name for (name, _), t in zip(named, totals, strict=True) if t == max(wrong))
            text = f"{name} scored {max(wrong):g}, more than any dress of the gold answer ({max(right):g})"
            yield self._result("signal", "warn", text, file=self._reward.entry)

    def _fault(self, name: str, error: RewardError, prefix: str) -> CheckResult:
        return self._result(name, "fail", prefix + error.message, file=error.file, line=error.line)

    def _result(
        self,
        name: str,
        status: Literal["pass", "warn", "fail"],
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
    ) -> CheckResult:
        self.broken |= status == "fail"
        return CheckResult(
            address=self._reward.address, name=name, status=status, message=message, file=file, line=line
        )


def _scored(sample: str, outcome: Score | RewardError, expect: float | None = None) -> SampleScore:
    """What one sample was paid; a number that JSON cannot hold is told in words."""
    if isinstance(outcome, RewardError):
        return SampleScore(sample=sample, expect=expect, error=outcome.message[:QUOTED])
    if not math.isfinite(outcome.total):
        return SampleScore(sample=sample, expect=expect, error=f"scored {outcome.total:g}")
    return SampleScore(sample=sample, expect=expect, total=outcome.total)


def _first_of_each(faults: Iterator[tuple[str, RewardError]]) -> list[tuple[str, RewardError]]:
    """One fault per place and kind, so that a reward broken on every row says so once."""
    seen: dict[tuple[str | None, int | None, str], tuple[str, RewardError]] = {}
    for name, error in faults:
        kind = error.message.partition(":")[0] if " raised " in error.message else error.message[-60:]
        seen.setdefault((error.file, error.line, kind), (name, error))
    return list(seen.values())
