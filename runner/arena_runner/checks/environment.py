"""Is an environment one? Imported, constructed, tested by its library and stepped, all inside the sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from arena_gitops.spec.inputs import EnvironmentProfile
from arena_gitops.spec.job import EnvironmentInput
from arena_gitops.spec.wire import CheckResult
from arena_runner.checks.laid_out import BlobPath, laid_out_files
from arena_runner.sandbox import Limits
from arena_runner.sandbox.libraries import own_python
from arena_runner.sandbox.score import RewardError
from arena_runner.sandbox.task import Task, TaskError
from arena_runner.sandbox.unpack import unpacked

CODE = tuple(
    Path(__file__).with_name(f"{name}.py") for name in ("environment_driver", "agents_code", "box_code")
)
"""what is copied into the box; the first is the driver"""
LIMITS = Limits(call_timeout_s=60.0)
STEPS = 200
EPISODES = 100
ROLLOUT_S = 20.0
PROFILE_S = 1.0
PROFILED = 4
"""environments that are stepped in turns to measure one"""
SEED = 7

TITLES = {
    "import": "import",
    "construct": "constructor",
    "api": "library check",
    "steps": "random steps",
    "idle": "idle steps",
    "rewards": "reward bounds",
    "determinism": "seeding",
    "leak": "resets",
    "rollouts": "random episodes",
    "profile": "profile",
}
PASSED = {
    "api": "gymnasium's check_env passes",
    "idle": "the same action again and again is answered too",
    "determinism": "the same seed gives the same episode",
    "leak": "resets leave nothing behind",
}
NEEDED = {"import", "construct"}
"""Stages without which the later ones say nothing new."""


class EnvironmentCheck:
    """Checks one environment; `values` afterwards holds what it has told of itself."""

    def __init__(
        self,
        environment: EnvironmentInput,
        blob_path: BlobPath,
        *,
        language: bool = False,
        rollouts: bool = False,
        stages: Sequence[str] = (),
        limits: Limits = LIMITS,
    ) -> None:
        self._environment, self._blob_path, self._limits = environment, blob_path, limits
        self._language = language
        self._stages = ["import", "construct"]
        if not language:
            # Ours first where the library's words would be less clear, and its own first where ours rely on it.
            stepped = ["steps", "idle", "rewards", "determinism"]
            self._stages += ["api", *stepped] if environment.multi_agent else [*stepped, "api"]
            self._stages += ["leak"]
            self._stages += ["rollouts"] if rollouts else []
        self._stages = list(stages) or self._stages
        self._needed = {*NEEDED, *(["api"] if environment.multi_agent else [])}
        self.values: dict[str, Any] = {}

    def run(self) -> Iterator[CheckResult]:
        """Yield every verdict; a failing check is a result, never an exception."""
        stage = "import"
        if self._environment.entrypoint is None:
            yield self._verdict(
                stage, "fail", "no environment of it was chosen: write entrypoint: module:Class"
            )
            return
        told: set[tuple[str | None, int | None]] = set()
        try:
            with laid_out_files(self._environment.files, self._blob_path) as files, self._task(files) as task:
                for stage in self._stages:
                    if told and stage in {"api", "rewards"}:
                        continue  # the library would say it again in other words, and not all rewards were seen
                    result = self._result(stage, task.call(stage, self._options()))
                    again = result.status == "fail" and (result.file, result.line) in told
                    if not again:
                        yield result
                    if result.status == "fail":
                        told.add((result.file, result.line))
                        if stage in self._needed or "took longer" in result.message:
                            return
        except RewardError as problem:  # of what it requires, or of its archive
            yield self._verdict(stage, "fail", problem.message, file=problem.file, line=problem.line)
            return
        except TaskError as problem:
            yield self._verdict(stage, "fail", str(problem))
            return
        if self._language:
            text = "environments for language models are imported and constructed only"
            yield self._verdict("api", "warn", text)

    def profile(self) -> dict[str, float]:
        """Steps a second, processor and memory of one environment; TaskError when it does not get so far."""
        with laid_out_files(self._environment.files, self._blob_path) as files, self._task(files) as task:
            for stage in ("import", "construct", "profile"):
                answer = task.call(stage, self._options(seconds=PROFILE_S))
                if not answer["ok"]:
                    raise TaskError(place(answer) + answer["error"])
        return {name: float(value) for name, value in answer["values"].items()}

    def measured(self, known: EnvironmentProfile | None = None) -> CheckResult:
        """The verdict that holds what it costs, measured unless that is known; what cannot be measured is a warning."""
        try:
            found = known or EnvironmentProfile(content=self._environment.content, **self.profile())
        except (TaskError, RewardError) as problem:
            return self._verdict("profile", "warn", f"it could not be measured: {problem}")
        size = f"{found.memory_per_env_gb * 1024:.3g} MiB and {found.avg_cpu_per_env:.0f} % of a processor"
        said = f"{found.steps_per_second:,.0f} random steps a second in one process, {size} each"
        return self._verdict("profile", "pass", said).model_copy(update={"profile": found})

    def _task(self, files: Path) -> Task:
        def python() -> Path:
            return own_python(self._environment)

        return Task(files, unpacked(files, self._environment.files), CODE, python, self._limits)

    def _options(self, *, seconds: float = ROLLOUT_S) -> dict[str, Any]:
        return {**options(self._environment, seconds=seconds), "limit_s": self._limits.call_timeout_s}

    def _result(self, stage: str, answer: Mapping[str, Any]) -> CheckResult:
        if not answer["ok"]:
            file, line = answer["file"] or None, answer["line"] or None
            return self._verdict(stage, "fail", answer["error"], file=file, line=line)
        self.values.update(answer["values"])
        if answer["warnings"]:
            return self._verdict(stage, "warn", "; ".join(answer["warnings"]))
        return self._verdict(stage, "pass", self._said(stage, answer["values"]))

    def _said(self, stage: str, values: Mapping[str, Any]) -> str:
        match stage:
            case "construct":
                return f"sees {values['observation_space']}, does {values['action_space']}"
            case "steps":
                return f"{values['steps']} steps, paid {values['mean_reward']:.3g} on average"
            case "rewards":
                ends = f"between {values['least_reward']:.3g} and {values['greatest_reward']:.3g}"
                said = values["reward_range"]
                return (
                    f"{ends}, within its reward_range {said}"
                    if said
                    else f"{ends}; no reward_range is declared"
                )
            case "rollouts":
                episodes, paid = values["episodes"], values["mean_return"]
                return f"{episodes} episodes of {values['mean_length']:.3g} steps, paid {paid:.3g} on average"
            case "api" if self._environment.multi_agent:
                return "PettingZoo's tests pass"
        return PASSED.get(stage, str(self._environment.entrypoint))

    def _verdict(
        self,
        stage: str,
        status: Literal["pass", "warn", "fail"],
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
    ) -> CheckResult:
        address = self._environment.address or "environment"
        name = TITLES[stage]
        return CheckResult(address=address, name=name, status=status, message=message, file=file, line=line)


def options(environment: EnvironmentInput, *, seconds: float = ROLLOUT_S) -> dict[str, Any]:
    """What every stage of the driver is told."""
    return {
        "entrypoint": environment.entrypoint,
        "config": environment.env_config,
        "multi_agent": environment.multi_agent,
        "steps": STEPS,
        "seed": SEED,
        "episodes": EPISODES,
        "seconds": seconds,
        "environments": PROFILED,
    }


def place(answer: Mapping[str, Any]) -> str:
    """`file:line: ` when it is known."""
    return f"{answer['file']}:{answer['line']}: " if answer["file"] else ""
