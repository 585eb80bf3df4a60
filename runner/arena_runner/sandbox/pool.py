"""Score completions with the user's reward: several sandboxed processes, started when needed, replaced when used up.

The training loop, the checks and the server call this; none of them ever imports user code.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from arena_gitops.spec.job import RewardInput
from arena_runner.sandbox.box import Box
from arena_runner.sandbox.limits import Limits, Wall
from arena_runner.sandbox.packages import Wheels, python_with
from arena_runner.sandbox.process import Ended, Frame, Hung, Process, Program
from arena_runner.sandbox.score import RewardError, Score, ScoreRow, Watched
from arena_runner.sandbox.secrets import Veil

BATCH = 64
"""rows sent to a process at once: large enough to hide the pipe, small enough to share out evenly"""


@dataclass(slots=True)
class Patience:
    """How many faults one call to the pool bears before it gives up the rows that are left."""

    faults: int | None = None
    hangs: int | None = None
    lost_with: RewardError | None = None
    """the fault that was one too many"""

    def ends_with(self, fault: RewardError, *, hung: bool = False) -> bool:
        """Count a fault; whether it was one too many."""
        if self.faults is not None:
            self.faults -= 1
        if self.hangs is not None and hung:
            self.hangs -= 1
        if 0 in {self.faults, self.hangs} and self.lost_with is None:
            self.lost_with = fault
        return self.lost_with is not None


class RewardPool:
    """A context manager; `score` may be called from several threads."""

    def __init__(
        self,
        reward: RewardInput,
        files: Path,
        *,
        workers: int = 1,
        limits: Limits | None = None,
        call_timeout_s: float | None = None,
        secrets: Mapping[str, str] | None = None,
        wheels: Wheels | None = None,
        watched: bool = False,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            reward: entry file, function, network, requirements.
            files: folder that holds `reward.files` under their repository paths.
            workers: processes that may run at the same time.
            limits: ceilings of each process.
            call_timeout_s: shorthand for the one limit people change.
            secrets: values of the names in `reward.secrets`; others are not passed on.
            wheels: what `reward.requirements` need; without them this machine's package index is asked.
            watched: whether scores say what each call took and touched.
        """
        limits = limits or Limits()
        if call_timeout_s is not None:
            limits = replace(limits, call_timeout_s=call_timeout_s)
        self._limits = limits
        self._reward = reward
        self._files = files
        self._secrets = {name: value for name, value in (secrets or {}).items() if name in reward.secrets}
        self._veil = Veil(self._secrets)
        self._workers = workers
        self._wheels = wheels
        self._watched = watched
        self._idle: queue.SimpleQueue[Process | None] = queue.SimpleQueue()
        self._box: Box | None = None
        self._walls: tuple[Wall, ...] = ()
        self._program: Program | None = None
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        """Copy the files, prepare the interpreter and start one process, so that import errors come early."""
        self._program = Program(
            self._reward.entry,
            self._reward.function,
            self._reward.network,
            self._secrets,
            python_with(self._reward.requirements, entry=self._reward.entry, wheels=self._wheels),
            watched=self._watched,
        )
        self._box = Box.make(self._files, tuple(self._reward.files))
        try:
            first = self._start()
        except BaseException:
            self._box.remove()
            raise
        self._walls = first.walls
        self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="reward")
        self._idle.put(first)
        for _ in range(self._workers - 1):
            self._idle.put(None)  # a place for a process that is started by its first batch
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill every process and delete the box."""
        if self._threads is not None:
            self._threads.shutdown()
        for _ in range(self._workers):
            process = self._idle.get()
            if process is not None:
                process.kill()
        if self._box is not None:
            self._box.remove()

    @property
    def walls(self) -> tuple[Wall, ...]:
        """Which walls stand around the user's code on this machine."""
        return self._walls

    def score(self, rows: Sequence[ScoreRow]) -> list[Score]:
        """Score every row, in order; the first RewardError ends it."""
        scores: list[Score] = []
        for outcome in self._outcomes(rows, Patience(faults=1)):
            if isinstance(outcome, RewardError):
                raise outcome
            scores.append(outcome)
        return scores

    def score_each(self, rows: Sequence[ScoreRow], *, hangs: int | None = None) -> list[Score | RewardError]:
        """Score every row, in order; a row's fault stands in its place and harms no other row.

        Args:
            rows: what to score.
            hangs: after so many rows that took too long, the rest is given up and gets the same error.
        """
        return self._outcomes(rows, Patience(hangs=hangs))

    def _outcomes(self, rows: Sequence[ScoreRow], patience: Patience) -> list[Score | RewardError]:
        if self._threads is None:
            raise RuntimeError("a RewardPool is used inside `with`")
        size = max(1, min(BATCH, math.ceil(len(rows) / self._workers)))
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        done = self._threads.map(lambda batch: self._score_batch(batch, patience), batches)
        return [outcome for outcomes in done for outcome in outcomes]

    def _score_batch(self, rows: Sequence[ScoreRow], patience: Patience) -> list[Score | RewardError]:
        outcomes: list[Score | RewardError] = []
        process = self._idle.get()
        try:
            while len(outcomes) < len(rows) and patience.lost_with is None:
                if process is None:
                    process = self._start()
                if not self._advance(process, rows, outcomes, patience):
                    process.kill()
                    process = None
        except RewardError as error:  # the import fails now, although it worked at the start
            patience.lost_with = error
        finally:
            self._idle.put(process)
        if patience.lost_with is not None:
            outcomes.extend([patience.lost_with] * (len(rows) - len(outcomes)))
        return outcomes

    def _advance(
        self,
        process: Process,
        rows: Sequence[ScoreRow],
        outcomes: list[Score | RewardError],
        patience: Patience,
    ) -> bool:
        """Continue the batch; False when the process is dead, used up or owes answers nobody waits for."""
        left = rows[len(outcomes) :]
        try:
            for frame in process.call([(row.question, row.answer, row.completion) for row in left]):
                outcome = self._outcome(process, frame)
                outcomes.append(outcome)
                if isinstance(outcome, RewardError) and patience.ends_with(outcome):
                    return False
        except Hung:
            fault = self._fault(process, f"the reward took longer than {self._limits.call_timeout_s:g} s")
            fault.hung = True
            outcomes.append(fault)
            patience.ends_with(fault, hung=True)
            return False
        except Ended as end:
            fault = self._fault(process, f"the reward failed: {end}")
            outcomes.append(fault)
            patience.ends_with(fault)
            return False
        return process.calls < self._limits.calls_per_process

    def _outcome(self, process: Process, frame: Frame) -> Score | RewardError:
        match frame:
            case {"score": float(total)} if math.isfinite(total):
                return Score(total, watched=_watched(frame))
            case {"parts": dict(parts)} if parts and all(math.isfinite(part) for part in parts.values()):
                named = {self._veil.over(str(name)): part for name, part in parts.items()}
                return Score(math.fsum(parts.values()), named, _watched(frame))
            case {"error": {"message": str(message), "file": str(file), "line": int(line)}}:
                return self._error(process, message, file, line)
        raise Ended("it wrote into the sandbox's own channel")

    def _fault(self, process: Process, message: str) -> RewardError:
        process.kill()  # first, so that all of its output has arrived
        return self._error(process, message, *process.place)

    def _error(self, process: Process, message: str, file: str, line: int) -> RewardError:
        """What went wrong, with what was printed, without the values of secrets."""
        output = self._veil.over(process.output.text())
        return RewardError(self._veil.over(message), file, line, output=output)

    def _start(self) -> Process:
        """Start a process and import the user's file in it."""
        assert self._program is not None
        assert self._box is not None
        process = Process(self._program, self._box, self._limits)
        try:
            frame = process.load()
        except Hung:
            seconds = self._limits.import_timeout_s
            problem = self._fault(process, f"importing the reward took longer than {seconds:g} s")
        except Ended as end:
            problem = self._fault(process, f"importing the reward failed: {end}")
        else:
            if "ready" in frame:
                return process
            fault = frame["error"]
            process.kill()
            problem = self._error(process, fault["message"], fault["file"], fault["line"])
        raise problem


def _watched(frame: Frame) -> Watched | None:
    """What the child says of a call, where it watches; text of the user's, so that nothing of its form is relied on."""
    match frame.get("watched"):
        case {"seconds": float(seconds), "peak_bytes": int(peak), "touched": list(touched)}:
            return Watched(seconds, peak, tuple(str(one) for one in touched))
    return None
