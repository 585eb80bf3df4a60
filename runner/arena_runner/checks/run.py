"""Everything that can be checked of one experiment before it runs: match, dataset, environment, reward, in that order.

The server streams these over `POST /api/v1/checks`, `arena-runner check` prints them. With a forecast, the base model is
asked too, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from arena_gitops.spec.inputs import PETTINGZOO, EnvironmentProfile
from arena_gitops.spec.job import DatasetInput, EnvironmentInput, HubDataset, RewardInput
from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.checks.dataset import DatasetCheck
from arena_runner.checks.environment import EnvironmentCheck
from arena_runner.checks.forecast import Sampler, forecast, in_a_process
from arena_runner.checks.laid_out import BlobPath, laid_out_files
from arena_runner.checks.lengths import Lengths
from arena_runner.checks.match import check_match
from arena_runner.checks.reward import RewardCheck
from arena_runner.checks.spaces_match import check_spaces
from arena_runner.checks.splits import check_splits
from arena_runner.checks.telling import Setting
from arena_runner.data import DataError
from arena_runner.faults import OutsideError
from arena_runner.sandbox import Limits, RewardError

NO_PROFILES: Mapping[str, EnvironmentProfile] = MappingProxyType({})
ROWS = 64
"""rows of a dataset that a reward is asked about"""
Hub = Callable[[HubDataset], Sequence[Path]]
"""The files of a split, here; DataError where there is none, OutsideError where it cannot be had now."""


def run_checks(
    request: CheckRequest,
    blob_path: BlobPath,
    *,
    limits: Limits | None = None,
    stored: Collection[str] | None = None,
    sampler: Sampler | None = None,
    models: Path | None = None,
    hub: Hub | None = None,
    profiles: Mapping[str, EnvironmentProfile] = NO_PROFILES,
) -> Iterator[CheckResult]:
    """Yield one verdict after the other; a failing check is a result, never an exception.

    Args:
        request: the experiment.
        blob_path: where its files lie.
        limits: of the sandbox.
        stored: names of the secrets that a server has; None where values come from this machine's environment.
        sampler: asks the base model, for requests with a forecast; default: a process of its own.
        models: the folder that names of base models are looked up in.
        hub: brings rows of the hub; without it they are the worker's to check.
        profiles: what is known of environments, by their content; any other is measured.
    """
    yield from check_match(request)
    rows: Sequence[Mapping[str, str]] = ()
    dataset, reward = request.inputs.dataset, request.inputs.reward
    if dataset is not None:
        brought = _files(dataset, blob_path, hub)
        if isinstance(brought, CheckResult):
            yield brought
        else:
            lengths = Lengths(request, models)
            check = DatasetCheck(dataset, brought, keep=ROWS, lengths=lengths)
            yield from check.run()
            yield from check_splits(request, check.questions)
            rows = check.rows
    if request.inputs.environment is not None:
        yield from _environment(request, request.inputs.environment, blob_path, profiles)
    if reward is not None:
        try:
            with laid_out(reward, blob_path) as files:
                check_reward = RewardCheck(
                    reward, files, rows, limits, stored=stored, setting=_setting(request)
                )
                yield from check_reward.run()
                if request.forecast and not check_reward.withheld:
                    yield from _forecast(request, rows, check_reward, sampler or in_a_process())
        except RewardError as error:
            yield CheckResult(address=reward.address, name="files", status="fail", message=error.message)


def _files(dataset: DatasetInput, blob_path: BlobPath, hub: Hub | None) -> Sequence[Path] | CheckResult:
    """Where the rows lie, or why they are not looked at."""
    if dataset.digest is not None:
        return [blob_path(dataset.digest)]

    def told(status: Literal["warn", "fail"], message: str) -> CheckResult:
        return CheckResult(address=dataset.address, name="rows", status=status, message=message)

    if dataset.hf is None:
        return told("fail", "it has neither a file nor rows on the hub")
    later = "the worker reads and checks them before it trains"
    if hub is None:
        return told("warn", f"rows of {dataset.hf.id} are on the hub; {later}")
    try:
        return hub(dataset.hf)
    except DataError as problem:
        return told("fail", str(problem))
    except OutsideError as problem:
        return told("warn", f"{problem}; {later}")


def _environment(
    request: CheckRequest,
    environment: EnvironmentInput,
    blob_path: BlobPath,
    profiles: Mapping[str, EnvironmentProfile],
) -> Iterator[CheckResult]:
    """Custom code from its import to its profile; a registered id only has to exist here and fit the algorithm."""
    if environment.gym_id is not None:
        check = EnvironmentCheck(_registered(environment), blob_path, stages=("import", "construct"))
        for result in check.run():
            if result.status == "fail":
                elsewhere = f"No module named '{environment.gym_id}'" not in result.message and any(
                    name in result.message for name in ("DependencyNotInstalled", "ModuleNotFoundError")
                )
                status = "warn" if elsewhere else "fail"  # the worker's machine may have what this one lacks
                told = {"address": request.address, "name": environment.gym_id, "status": status}
                yield result.model_copy(update=told)
    else:
        check = EnvironmentCheck(environment, blob_path)
        failed = False
        for result in check.run():
            failed |= result.status == "fail"
            yield result
        if not failed:
            yield check.measured(profiles.get(environment.content))
    yield from check_spaces(request, check.values)


def _registered(environment: EnvironmentInput) -> EnvironmentInput:
    """What makes one of a library's own environments, which have no files."""
    name, config = str(environment.gym_id), environment.env_config
    if PETTINGZOO.fullmatch(name):
        return EnvironmentInput(entrypoint=f"{name}:parallel_env", multi_agent=True, env_config=config)
    return EnvironmentInput(entrypoint="gymnasium:make", env_config={"id": name, **config})


def _setting(request: CheckRequest) -> Setting:
    """What an experiment says about the completions its reward will see."""
    environment, algorithm = (request.manifest.get(name) for name in ("environment", "algorithm"))
    template = environment.get("prompt_template") if isinstance(environment, dict) else None
    said = template.values() if isinstance(template, dict) else [template]
    prompt = "\n".join(text for text in said if isinstance(text, str))
    tokens = algorithm.get("max_output_tokens") if isinstance(algorithm, dict) else None
    return Setting(prompt=prompt, tokens=tokens) if isinstance(tokens, int) else Setting(prompt=prompt)


def _forecast(
    request: CheckRequest, rows: Sequence[Mapping[str, str]], reward: RewardCheck, sampler: Sampler
) -> Iterator[CheckResult]:
    """Groups without signal, by what the base model says; nothing where the reward itself cannot run."""
    if reward.broken:
        return
    found = forecast(request, rows, reward.score, sampler)
    if found is not None:
        yield found


@contextmanager
def laid_out(reward: RewardInput, blob_path: BlobPath) -> Iterator[Path]:
    """A folder with the reward's files under their repository paths."""
    with laid_out_files(reward.files, blob_path) as folder:
        yield folder
