"""Validating and profiling an environment, line by line; what is found is remembered with its version."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from arena_gitops.spec.inputs import EnvironmentProfile
from arena_gitops.spec.wire import CheckResult
from arena_runner.checks.environment import EnvironmentCheck
from arena_runner.sandbox import RewardError
from arena_runner.sandbox.task import TaskError
from arena_runner.server import profiles
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import environments
from arena_runner.server.services.environments import Version
from arena_runner.server.services.remarks import Done, Remark
from arena_runner.server.world import World

SHARE = 0.8
"""of a tier's memory that environments may take; the rest is for what learns"""


def validate(world: World, version: Version, *, rollouts: bool) -> Iterator[Remark | CheckResult | Done]:
    """Every check, then a measurement; the last line is the result.

    Raises:
        RefusedError: Something has failed; the version is remembered as not valid.
    """
    yield Remark(f"checking environment {version.title}: {version.source.entrypoint}")
    check = EnvironmentCheck(
        version.source, world.blobs.existing, language=version.language, rollouts=rollouts
    )
    failed = []
    for result in check.run():
        yield result
        if result.status == "fail":
            place = f"{result.file}:{result.line}: " if result.file and result.line else ""
            failed.append(f"{result.name}: {place}{result.message}")
    if failed:
        environments.mark(world, version, validated=False, profiled=version.profiled, report={})
        message = f"environment {version.title} is not valid:\n" + "\n".join(failed)
        raise RefusedError(422, "check-failed", message)
    measured = yield from _measured(world, version, check)
    report = {**check.values, **measured}
    environments.mark(world, version, validated=True, profiled=bool(measured), report=report)
    detail = {"name": version.name, "version": version.label, "validated": True}
    yield Done(
        f"Environment {version.title} is valid",
        {**detail, "entrypoint": version.source.entrypoint, **check.values, **measured},
    )


def profile(world: World, version: Version) -> Iterator[Remark | Done]:
    """What one environment costs; the published client prints the result and needs numbers only."""
    if not version.validated:
        message = f"environment {version.title} has not been found valid yet: validate it first"
        raise RefusedError(409, "not-validated", message)
    yield Remark(f"measuring environment {version.title}")
    check = EnvironmentCheck(version.source, world.blobs.existing, language=version.language)
    try:
        measured = check.profile()
    except (TaskError, RewardError) as problem:
        raise RefusedError(422, "check-failed", f"environment {version.title}: {problem}") from problem
    profiles.keep(world, EnvironmentProfile(content=version.source.content, **measured))
    for tier, count in _fits(world, measured["memory_per_env_gb"]).items():
        yield Remark(f"tier {tier} has memory for {count:,} of them")
        measured[f"environments_on_{tier}"] = float(count)
    environments.mark(world, version, validated=True, profiled=True, report=measured)
    yield Done(f"Profiled environment {version.title}", measured)


def _fits(world: World, gigabytes: float) -> dict[str, int]:
    """How many fit each tier by their memory; processors only make them slower. Nothing where they take none."""
    if gigabytes <= 0:
        return {}
    return {tier.id: int(SHARE * tier.ram_gb / gigabytes) for tier in world.tiers.tiers}


def _measured(
    world: World, version: Version, check: EnvironmentCheck
) -> Generator[Remark, None, dict[str, float]]:
    """Figures, or a warning why there are none; its return value is what was measured."""
    try:
        measured = check.profile()
    except (TaskError, RewardError) as problem:
        yield Remark(f"it could not be measured: {problem}", warning=True)
        return {}
    profiles.keep(world, EnvironmentProfile(content=version.source.content, **measured))
    yield Remark(f"{measured['steps_per_second']:.0f} random steps a second in one process")
    return measured
