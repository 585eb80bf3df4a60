"""Everything that can be checked of one experiment before it runs: match, dataset, reward, in that order.

The server streams these over `POST /api/v1/checks`, `arena-runner check` prints them. With a forecast, the base model is
asked too, in a process of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from arena_gitops.spec.job import RewardInput
from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.checks.dataset import DatasetCheck
from arena_runner.checks.forecast import Sampler, forecast, in_a_process
from arena_runner.checks.match import check_match
from arena_runner.checks.reward import RewardCheck
from arena_runner.checks.splits import check_splits
from arena_runner.sandbox import Limits, RewardError, inside

BlobPath = Callable[[str], Path]
"""digest → where those bytes lie"""


def run_checks(
    request: CheckRequest,
    blob_path: BlobPath,
    *,
    limits: Limits | None = None,
    stored: Collection[str] | None = None,
    sampler: Sampler | None = None,
) -> Iterator[CheckResult]:
    """Yield one verdict after the other; a failing check is a result, never an exception.

    Args:
        request: the experiment.
        blob_path: where its files lie.
        limits: of the sandbox.
        stored: names of the secrets that a server has; None where values come from this machine's environment.
        sampler: asks the base model, for requests with a forecast; default: a process of its own.
    """
    yield from check_match(request)
    rows: Sequence[Mapping[str, str]] = ()
    dataset, reward = request.inputs.dataset, request.inputs.reward
    if dataset is not None and dataset.digest is not None:
        check = DatasetCheck(dataset, blob_path(dataset.digest))
        yield from check.run()
        yield from check_splits(request, check.questions)
        rows = check.rows
    elif dataset is not None and dataset.hf is not None:
        yield CheckResult(
            address=dataset.address,
            name="rows",
            status="warn",
            message=f"rows of {dataset.hf.id} are on the hub; the worker reads and checks them before it trains",
        )
    if reward is not None:
        try:
            with laid_out(reward, blob_path) as files:
                check_reward = RewardCheck(reward, files, rows, limits, stored=stored)
                yield from check_reward.run()
                if request.forecast and not check_reward.withheld:
                    yield from _forecast(request, rows, check_reward, sampler or in_a_process())
        except RewardError as error:
            yield CheckResult(address=reward.address, name="files", status="fail", message=error.message)


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


@contextmanager
def laid_out_files(files: Mapping[str, str], blob_path: BlobPath) -> Iterator[Path]:
    """A folder with files, given by path and digest."""
    folder = Path(tempfile.mkdtemp(prefix="arena-files-"))
    try:
        for name, digest in files.items():
            target = folder / inside(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob_path(digest), target)
        yield folder
    finally:
        shutil.rmtree(folder)
