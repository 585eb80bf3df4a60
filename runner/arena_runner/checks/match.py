"""Does the dataset's category fit the algorithm, and has the algorithm what it needs? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from arena_gitops.spec.job import COLUMNS, DatasetCategory
from arena_gitops.spec.wire import CheckRequest, CheckResult

WANTED: dict[str, DatasetCategory] = {
    "GRPO": DatasetCategory.REASONING,
    "SFT": DatasetCategory.SFT,
    "DPO": DatasetCategory.PREFERENCE,
}
"""What each text algorithm trains on."""


def check_match(request: CheckRequest) -> Iterator[CheckResult]:
    """Compare algorithm, dataset category and reward."""
    section = request.manifest.get("algorithm")
    algorithm = str(section.get("name")) if isinstance(section, dict) else ""
    wanted = WANTED.get(algorithm)
    if wanted is None:
        return
    problem = _problem(algorithm, wanted, request)
    yield CheckResult(
        address=request.address, name="match", status="fail" if problem else "pass", message=problem
    )


def _problem(algorithm: str, wanted: DatasetCategory, request: CheckRequest) -> str:
    dataset = request.inputs.dataset
    columns = ", ".join(COLUMNS[wanted])
    if dataset is None:
        return f"{algorithm} trains on a dataset of category {wanted} (columns {columns}); the experiment has none"
    if dataset.category != wanted:
        fitting = ", ".join(name for name, category in WANTED.items() if category == dataset.category)
        return (
            f"{algorithm} trains on category {wanted} (columns {columns}), but {dataset.address} is "
            f"{dataset.category}, which fits {fitting}"
        )
    if wanted is DatasetCategory.REASONING and request.inputs.reward is None:
        return f"{algorithm} needs a reward; name one in the experiment (reward: …)"
    return ""
