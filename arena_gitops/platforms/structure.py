"""What can be said about a resource without running anything: shapes, files, columns, function names."""

from __future__ import annotations

import ast
import csv
import io
from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from arena_gitops.errors import PlatformRejectedError, Rejection
from arena_gitops.spec.job import COLUMNS, DatasetInput, JobInputs, RewardInput
from arena_gitops.spec.resource import Address, Frozen
from arena_gitops.spec.wire import (
    CheckRequest,
    CheckResult,
    DeploymentSpec,
    ExperimentSpec,
    PutResource,
    ResourceDocument,
)

_SPECS: dict[str, type[Frozen]] = {"experiment": ExperimentSpec, "deployment": DeploymentSpec}


def repeated(address: Address, answered: tuple[str, ResourceDocument], content: str) -> ResourceDocument:
    """The answer that a key was given before; refused when the key came with another body."""
    before, document = answered
    if before != content:
        message = f"the idempotency key of this write to {address} was used for another body"
        raise PlatformRejectedError(Rejection(422, "idempotency_key_reused", message))
    return document


def validated(address: Address, body: PutResource) -> None:
    """Refuse a spec that is not of its kind's shape."""
    model = _SPECS.get(address.kind)
    if model is None:
        return
    try:
        model.model_validate(body.spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"{address}: {place}: {first['msg']}"
        raise PlatformRejectedError(Rejection(status=422, code="invalid_spec", message=message)) from error


def digests_of(address: Address, body: PutResource) -> tuple[str, ...]:
    """Files that an experiment needs in store before it may be put."""
    if address.kind != "experiment":
        return ()
    inputs = JobInputs.model_validate(body.spec["inputs"])
    found: list[str] = []
    if inputs.dataset is not None and inputs.dataset.digest is not None:
        found.append(inputs.dataset.digest)
    if inputs.reward is not None:
        found.extend(inputs.reward.files.values())
    if inputs.environment is not None:
        found.extend(inputs.environment.files.values())
    return tuple(found)


def structural_checks(request: CheckRequest, blobs: Mapping[str, bytes]) -> Iterator[CheckResult]:
    """Verdicts on the dataset and the reward of one experiment."""
    if request.inputs.dataset is not None:
        yield from _dataset(request.inputs.dataset, blobs)
    if request.inputs.reward is not None:
        yield from _reward(request.inputs.reward, blobs)


def _dataset(dataset: DatasetInput, blobs: Mapping[str, bytes]) -> Iterator[CheckResult]:
    unmapped = [role for role in COLUMNS[dataset.category] if role not in dataset.column_mapping]
    if unmapped:
        yield _fail(dataset.address, "columns", f"column_mapping lacks {', '.join(unmapped)}")
        return
    if dataset.digest is None:
        yield _passed(dataset.address, "columns")
        return
    data = blobs.get(dataset.digest)
    if data is None:
        yield _fail(dataset.address, "file", f"{dataset.digest} was not uploaded")
    elif dataset.format == "csv":
        yield from _csv(dataset, data)
    else:
        yield _passed(dataset.address, "file")


def _csv(dataset: DatasetInput, data: bytes) -> Iterator[CheckResult]:
    rows = csv.reader(io.StringIO(data.decode("utf-8-sig")))
    header = next(rows, [])
    absent = [column for column in dataset.column_mapping.values() if column not in header]
    if absent:
        message = f"no column {', '.join(absent)}; the file has {', '.join(header) or 'no header'}"
        yield _fail(dataset.address, "columns", message)
    elif next(rows, None) is None:
        yield _fail(dataset.address, "rows", "the file has a header and no rows")
    else:
        yield _passed(dataset.address, "columns")


def _reward(reward: RewardInput, blobs: Mapping[str, bytes]) -> Iterator[CheckResult]:
    digest = reward.files.get(reward.entry)
    source = None if digest is None else blobs.get(digest)
    if source is None:
        yield _fail(reward.address, "file", f"{reward.entry} was not uploaded")
        return
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        yield CheckResult(
            address=reward.address,
            name="syntax",
            status="fail",
            message=error.msg,
            file=reward.entry,
            line=error.lineno,
        )
        return
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if reward.function in names:
        yield _passed(reward.address, "function")
    else:
        message = f"no function {reward.function}; the file defines {', '.join(sorted(names)) or 'none'}"
        yield _fail(reward.address, "function", message, file=reward.entry)


def _fail(address: str, name: str, message: str, *, file: str | None = None) -> CheckResult:
    return CheckResult(
        address=address, name=name, status="fail", message=message, file=file, line=1 if file else None
    )


def _passed(address: str, name: str) -> CheckResult:
    return CheckResult(address=address, name=name, status="pass")
