"""Does the dataset's category fit the algorithm, its columns the prompt, and has the algorithm what it needs? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from arena_gitops.spec.job import COLUMNS, DatasetCategory
from arena_gitops.spec.manifest.environment import unfilled
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
    for words in _template(request):
        yield CheckResult(address=request.address, name="prompt_template", status="fail", message=words)


def _template(request: CheckRequest) -> Iterator[str]:
    section, dataset = request.manifest.get("environment"), request.inputs.dataset
    template = section.get("prompt_template") if isinstance(section, dict) else None
    if not isinstance(template, dict) or dataset is None:
        return
    roles = dataset.column_mapping
    known = ", ".join(f"{{{role}}}" for role in roles)
    turns = {turn: text for turn, text in template.items() if isinstance(text, str)}
    for turn, word in unfilled(turns, roles):
        yield f"prompt_template.{turn}: {{{word}}} is filled by nothing; {dataset.address} fills {known}"


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
