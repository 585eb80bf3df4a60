"""Whether training teaches anything: `python runner/bench/learns.py gsm8k|arithmetic [--minutes M] [--out FOLDER]`.

SFT on at most 200 formatted rows, stopped while the format is right in 0.2 to 0.4 of the exam; GRPO goes on from
there for a fixed number of CPU seconds; beside it SFT goes on from there for as many. `arithmetic` repeats this with
several seeds, and adds GRPO whose rewards are shuffled within their group, which must teach nothing.

Exams are greedy, on rows that neither training nor selection has seen. Curves and samples lie in --out.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see arena_runner.cli
sys.path.insert(0, str(Path(__file__).parent))

import courses
import torch
from courses import Course

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.inputs import BaseInput
from arena_gitops.spec.job import Evaluation, Finished, JobEvent, JobInputs, JobSpec, RunState
from arena_gitops.spec.manifest import parse_manifest
from arena_runner import checkpoint, peft_format
from arena_runner import train as loop
from arena_runner.adapters import Population
from arena_runner.checks.main import default_category, local_dataset, local_reward
from arena_runner.engines.base import Request
from arena_runner.engines.torch import TorchEngine
from arena_runner.models import load_base
from arena_runner.opening import open_parts
from arena_runner.population.lineage import mean, standard_error
from arena_runner.ports import Files, Materials, Stop
from arena_runner.rollouts.prompts import Renderer
from arena_runner.rollouts.scored import Answer, Scored
from arena_runner.seeds import key

WANTED_FORMAT = (0.2, 0.4)
"""where SFT stops; from 0.11 no group of ten had a formatted completion, and GRPO ended without a signal"""
PROBED = 32
"""exam rows by which the stop is found"""
SFT_ROWS = 72
"""rows shown before the format begins; more would only be thrown away"""
SFT_SECONDS = 300.0
"""CPU seconds after which it has not learned the format and never will"""


@dataclass
class Clocked:
    """Ports of a run that ends after so many CPU seconds."""

    seconds: float
    curve: list[Evaluation] = field(default_factory=list)
    began: float = field(default_factory=time.process_time)
    times: list[float] = field(default_factory=list)

    @property
    def spent(self) -> float:
        """CPU seconds so far."""
        return time.process_time() - self.began

    def emit(self, event: JobEvent, files: Files | None = None) -> None:
        """Keep what makes a curve."""
        if isinstance(event, Evaluation):
            self.curve.append(event)
            self.times.append(self.spent)

    def stop(self) -> Stop | None:
        """Whether the time is over."""
        return Stop.ASKED if self.spent > self.seconds else None

    def cap(self) -> int | None:
        """Time alone ends it."""
        return None


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one training left."""

    folder: Path
    spent: float
    ports: Clocked

    def exports(self) -> list[checkpoint.Checkpoint]:
        """In the order of their steps."""
        standing = checkpoint.load_standing(checkpoint.state_folders(self.folder / "states")[-1])
        return sorted(standing.exports, key=lambda export: (export.step, export.member))

    def path(self, export: checkpoint.Checkpoint) -> Path:
        """The adapter of an export."""
        return self.folder / "exports" / f"step_{export.step}" / f"m{export.member}"

    def best(self) -> Path:
        """The fittest of all evaluations."""
        found = checkpoint.best(tuple(self.exports()))
        assert found is not None
        return self.path(found)

    def last(self) -> Path:
        """The first member's newest."""
        return self.path([export for export in self.exports() if export.member == 0][-1])


@dataclass(frozen=True)
class Shuffled(Scored):
    """The GRPO task whose rewards belong to somebody else of their group."""

    def _rewards(self, group: Sequence[Answer]) -> tuple[float, ...]:
        rewards = list(super()._rewards(group))
        random.Random(key(self.seed, "shuffle", *group[0].completion.token_ids[:8])).shuffle(rewards)  # noqa: S311 - not a secret
        return tuple(rewards)


class School:
    """Trains and examines on one course."""

    def __init__(self, course: Course, folder: Path) -> None:
        self.course = course
        self.folder = folder
        self.base = load_base(courses.MODEL)
        self.population = Population.attach(self.base, targets=courses.TARGETS, ranks=[16], alphas=[32])
        self.fresh = self.population.export(0)
        folder.mkdir(parents=True)
        self.shown = courses.write(course.shown, folder / "shown.jsonl")
        self.practice = courses.write(course.practice, folder / "practice.jsonl")

    def imitate(self, name: str, rows: int, *, every: int, seconds: float, start: Path | None) -> Lesson:
        """SFT on the shown rows."""
        manifest = courses.sft(self.course, rows, every=every)
        return self._train(name, manifest, self.shown, seconds=seconds, start=start)

    def practise(
        self, name: str, members: int, *, seconds: float, start: Path, seed: int, shuffled: bool = False
    ) -> Lesson:
        """GRPO on the practice rows."""
        manifest = courses.grpo(self.course, members, every=5, seed=seed)
        return self._train(name, manifest, self.practice, seconds=seconds, start=start, shuffled=shuffled)

    def _train(
        self,
        name: str,
        manifest: Mapping[str, Any],
        rows: Path,
        *,
        seconds: float,
        start: Path | None,
        shuffled: bool = False,
    ) -> Lesson:
        normal = parse_manifest(dict(manifest)).manifest.normal()
        category = default_category(normal)
        job = JobSpec(
            run_id=name,
            segment=0,
            experiment=name,
            fingerprint=sha256_json(normal),
            manifest=normal,
            inputs=JobInputs(
                dataset=local_dataset(rows, category, (), {}),
                reward=local_reward(courses.REWARD, "reward", (), {}) if category == "reasoning" else None,
                base=BaseInput(experiment="start") if start else None,
            ),
            model=None,
            seed=normal["mutation"]["rand_seed"],  # type: ignore[index, call-overload, arg-type] # a manifest's
            tier="local",
        )
        materials = Materials(self.folder / name, (rows,), courses.REWARD.parent, base=start)
        materials.workdir.mkdir()
        ports = Clocked(seconds)
        with open_parts(job, materials, ports) as parts:
            if shuffled:
                task = parts.task
                assert isinstance(task, Scored)
                own = {each.name: getattr(task, each.name) for each in fields(Scored)}
                parts = replace(parts, task=Shuffled(**own))  # noqa: PLW2901 - the same run, another task
            finished: Finished = loop.run(parts, materials, ports)
        assert finished.state in {RunState.STOPPED, RunState.COMPLETED}, finished
        return Lesson(materials.workdir, ports.spent, ports)

    def exam(self, name: str, adapter: Path | None, rows: int | None = None) -> Exam:
        """Greedy answers to the exam's questions, by one adapter or by the base model."""
        self.population.load(0, peft_format.read(adapter)[0] if adapter else self.fresh)
        questions = self.course.exam[:rows]
        render = Renderer(self.base.tokenizer, courses.template("question"), "question")
        prompts = [render.prompt(row) for row in questions]
        engine = TorchEngine(self.base, self.population, rows_in_flight=64)
        requests = [Request(0, prompt.ids, self.course.room, greedy=True) for prompt in prompts]
        texts = [self.base.decode(done.token_ids) for done in engine.generate(requests)]
        score = courses.score()
        scores = [
            score(row["question"], row["answer"], text) for row, text in zip(questions, texts, strict=True)
        ]
        return Exam(name, [s["correctness"] for s in scores], [s["format"] for s in scores], texts)

    def just_formatted(self, lesson: Lesson) -> tuple[Path, Exam]:
        """The export of an SFT lesson at which the format begins, by halving: more steps write it more often."""
        exports = lesson.exports()
        low, high = 0, len(exports) - 1
        while low < high:
            middle = (low + high) // 2
            share = mean(self.exam("start", lesson.path(exports[middle]), PROBED).format)
            print(f"  SFT, {exports[middle].step} rows: format {share:.3f} of {PROBED}", flush=True)
            if WANTED_FORMAT[0] <= share <= WANTED_FORMAT[1]:
                low = high = middle
            elif share > WANTED_FORMAT[1]:
                high = middle
            else:
                low = middle + 1
        start = lesson.path(exports[low])
        return start, self.exam(f"start, SFT of {exports[low].step} rows", start)


@dataclass(frozen=True, slots=True)
class Exam:
    """One adapter's results, row by row."""

    name: str
    correctness: list[float]
    format: list[float]
    texts: list[str]

    def line(self) -> str:
        """For people."""
        return "  ".join(
            [f"{self.name:<28}"]
            + [
                f"{part} {mean(rows):.3f} ± {standard_error(rows):.3f}"
                for part, rows in (("format", self.format), ("correctness", self.correctness))
            ]
        )


def teach(school: School, out: Path, seconds: float, *, seed: int, label: str, shuffled: bool) -> None:
    """One start, GRPO and SFT from there for equal CPU seconds, and what they came to; kept after every step."""
    lessons: dict[str, Lesson] = {}
    exams: list[Exam] = []

    def note(exam: Exam) -> None:
        exams.append(exam)
        print(f"  {exam.line()}", flush=True)
        keep(out, label, lessons, exams, school.course)

    print(label, flush=True)
    note(school.exam("base", None))
    start, at_start = school.just_formatted(
        school.imitate("sft", SFT_ROWS, every=2, seconds=SFT_SECONDS, start=None)
    )
    note(at_start)
    practised = lessons["grpo"] = school.practise("grpo", 2, seconds=seconds, start=start, seed=seed)
    note(school.exam(f"GRPO {practised.spent:.0f} CPU-s", practised.best()))
    more = lessons["sft"] = school.imitate("control", 10**6, every=10, seconds=practised.spent, start=start)
    note(school.exam(f"SFT {more.spent:.0f} CPU-s, best", more.best()))
    note(school.exam(f"SFT {more.spent:.0f} CPU-s, last", more.last()))
    if shuffled:
        lost = school.practise("shuffled", 1, seconds=seconds, start=start, seed=seed, shuffled=True)
        lessons["shuffled"] = lost
        note(school.exam(f"shuffled {lost.spent:.0f} CPU-s, last", lost.last()))


def keep(out: Path, label: str, lessons: Mapping[str, Lesson], exams: Sequence[Exam], course: Course) -> None:
    """Write curves, samples and results."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"{label}_curves.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("lesson", "cpu_s", "member", "step", "name", "value"))
        for name, lesson in lessons.items():
            for seconds, event in zip(lesson.ports.times, lesson.ports.curve, strict=True):
                for part, value in {"fitness": event.fitness, **event.values}.items():
                    writer.writerow((name, f"{seconds:.0f}", event.member, event.step, part, f"{value:.4f}"))
    results = {
        exam.name: {
            part: {"mean": mean(rows), "stderr": standard_error(rows), "rows": len(rows)}
            for part, rows in (("format", exam.format), ("correctness", exam.correctness))
        }
        for exam in exams
    }
    (out / f"{label}.json").write_text(json.dumps(results, indent=1) + "\n")
    with (out / f"{label}_samples.md").open("w", encoding="utf-8") as file:
        for row, *texts in list(zip(course.exam, *(exam.texts for exam in exams), strict=True))[:5]:
            file.write(f"## {row['question']}\n\nright: {row['answer'].rpartition('#### ')[2]}\n\n")
            for exam, text in zip(exams, texts, strict=True):
                file.write(f"{exam.name}:\n\n```\n<think>{text}\n```\n\n")
    if lessons:
        _draw(out / f"{label}.png", lessons)


def _draw(path: Path, lessons: Mapping[str, Lesson]) -> None:
    """Format and correctness of GRPO's members over CPU seconds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True)
    for name, lesson in lessons.items():
        for part, axis in zip(("format", "correctness"), axes, strict=True):
            points = [
                (seconds, event.values[f"eval/reward/{part}"], event.member)
                for seconds, event in zip(lesson.ports.times, lesson.ports.curve, strict=True)
                if f"eval/reward/{part}" in event.values
            ]
            for member in sorted({m for _, _, m in points}):
                own = [(x, y) for x, y, m in points if m == member]
                axis.plot(*zip(*own, strict=True), label=f"{name} m{member}")
            axis.set_title(f"{part}, evaluation rows", fontsize=9)
            axis.set_xlabel("CPU seconds")
            axis.set_ylim(0, 1)
    if axes[0].lines:
        axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


@contextmanager
def workplace(keep_at: Path | None) -> Iterator[Path]:
    """A folder for runs: the one asked for, or one that goes away."""
    if keep_at is not None:
        yield keep_at
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Teach one course."""
    here = Path(__file__).resolve()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("course", choices=("gsm8k", "arithmetic"))
    parser.add_argument("--data", type=Path, default=here.parents[3] / "shared/data/gsm8k")
    parser.add_argument("--minutes", type=float, default=30.0, help="about; GRPO and its control take most")
    parser.add_argument("--seeds", type=int, default=3, help="arithmetic only")
    parser.add_argument("--exam-rows", type=int, default=128)
    parser.add_argument("--work", type=Path, help="keep the runs here")
    parser.add_argument("--out", type=Path, default=here.parent / "results")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    os.environ["ARENA_THREADS"] = "1"
    arithmetic = options.course == "arithmetic" or not options.data.is_dir()
    seeds = range(1, options.seeds + 1) if arithmetic else (42,)
    lessons = 3 if arithmetic else 2
    seconds = options.minutes * 60 * 0.8 / (lessons * len(seeds))
    with workplace(options.work) as folder:
        for seed in seeds:
            rows = options.exam_rows
            course = courses.arithmetic(seed, rows) if arithmetic else courses.gsm8k(options.data, rows)
            label = f"arithmetic_{seed}" if arithmetic else "gsm8k"
            teach(
                School(course, folder / label),
                options.out,
                seconds,
                seed=seed,
                label=label,
                shuffled=arithmetic,
            )


if __name__ == "__main__":
    main()
