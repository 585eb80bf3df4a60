"""Is an environment one? Imported, constructed, tested by its library and stepped, all inside the sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import InvalidRequirement, Requirement

from arena_gitops.spec.job import EnvironmentInput
from arena_gitops.spec.wire import CheckResult
from arena_runner.checks.run import BlobPath, laid_out_files
from arena_runner.sandbox import Limits
from arena_runner.sandbox.score import RewardError
from arena_runner.sandbox.task import Task, TaskError

DRIVER = Path(__file__).with_name("environment_driver.py")
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
    "determinism": "seeding",
    "rollouts": "random episodes",
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
        limits: Limits = LIMITS,
    ) -> None:
        self._environment, self._blob_path, self._limits = environment, blob_path, limits
        self._language = language
        self._stages = ["import", "construct"]
        if not language:
            self._stages += ["api", "steps", "determinism", *(["rollouts"] if rollouts else [])]
        self.values: dict[str, Any] = {}

    def run(self) -> Iterator[CheckResult]:
        """Yield every verdict; a failing check is a result, never an exception."""
        stage = "import"
        try:
            with laid_out_files(self._environment.files, self._blob_path) as files, self._task(files) as task:
                for stage in self._stages:
                    result = self._result(stage, task.call(stage, options(self._environment)))
                    yield result
                    if result.status == "fail" and stage in NEEDED:
                        return
        except (TaskError, RewardError) as problem:
            yield self._verdict(stage, "fail", str(problem))
            return
        if self._language:
            text = "environments for language models are imported and constructed only"
            yield self._verdict("api", "warn", text)

    def profile(self) -> dict[str, float]:
        """Steps a second, processor and memory of one environment; TaskError when it does not get so far."""
        with laid_out_files(self._environment.files, self._blob_path) as files, self._task(files) as task:
            for stage in ("import", "construct", "profile"):
                answer = task.call(stage, options(self._environment, seconds=PROFILE_S))
                if not answer["ok"]:
                    raise TaskError(place(answer) + answer["error"])
        return {name: float(value) for name, value in answer["values"].items()}

    def _task(self, files: Path) -> Task:
        wanted = with_libraries(self._environment)
        return Task(files, tuple(self._environment.files), DRIVER, wanted, self._limits)

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
            case "import":
                return str(self._environment.entrypoint)
            case "construct":
                return f"sees {values['observation_space']}, does {values['action_space']}"
            case "steps":
                return f"{values['steps']} steps, paid {values['mean_reward']:.3g} on average"
            case "rollouts":
                episodes, paid = values["episodes"], values["mean_return"]
                return f"{episodes} episodes of {values['mean_length']:.3g} steps, paid {paid:.3g} on average"
            case "determinism":
                return "the same seed gives the same episode"
        return "PettingZoo's tests pass" if self._environment.multi_agent else "gymnasium's check_env passes"

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


def with_libraries(environment: EnvironmentInput) -> tuple[str, ...]:
    """What an interpreter of its own must have; nothing when this installation has it all.

    The library of its check is added at this installation's version, unless the requirements name one.
    """
    if all(_here(one) for one in environment.requirements):
        return ()
    named = " ".join(environment.requirements).lower()
    wanted = ["gymnasium", *(["pettingzoo"] if environment.multi_agent else [])]
    return (*environment.requirements, *(_ours(name) for name in wanted if name not in named and _ours(name)))


def _here(requirement: str) -> bool:
    """Whether this installation satisfies a requirement; one that cannot be read is left to the installer."""
    try:
        wanted = Requirement(requirement)
        if wanted.extras or (wanted.marker is not None and not wanted.marker.evaluate()):
            return not wanted.extras
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except (InvalidRequirement, PackageNotFoundError):
        return False


def _ours(name: str) -> str:
    try:
        return f"{name}=={version(name)}"
    except PackageNotFoundError:
        return ""
