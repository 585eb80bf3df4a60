"""Are there enough different questions for a train, an evaluation and a test split? Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.data import cuts, shortage


def check_splits(request: CheckRequest, questions: int) -> Iterator[CheckResult]:
    """Compare what the manifest holds out with how many different questions there are."""
    if not questions or request.inputs.dataset is None:
        return  # whatever is wrong with the file has been said
    training, algorithm = _section(request, "training"), _section(request, "algorithm")
    if not training:
        return  # no manifest: nobody has said how many rows are held out
    wanted = {
        "eval_rows": _count(training, "eval_rows") * max(1, _count(training, "eval_loop")),
        "test_rows": _count(training, "test_rows"),
    }
    test, held = cuts(questions, **wanted)
    if held in {test, questions}:
        message = (
            f"{questions} different questions are too few for a train and an evaluation split beside "
            f"test_rows {wanted['test_rows']}; there must be at least {3 if wanted['test_rows'] else 2}"
        )
        yield _verdict(request, "fail", message)
        return
    for message in shortage(questions, **wanted, batch_size=_count(algorithm, "batch_size")):
        yield _verdict(request, "warn", message)


def _verdict(request: CheckRequest, status: Any, message: str) -> CheckResult:
    assert request.inputs.dataset is not None
    return CheckResult(address=request.inputs.dataset.address, name="splits", status=status, message=message)


def _section(request: CheckRequest, name: str) -> dict[str, Any]:
    found = request.manifest.get(name)
    return found if isinstance(found, dict) else {}


def _count(section: dict[str, Any], name: str) -> int:
    value = section.get(name)
    return int(value) if isinstance(value, int | float) else 0
