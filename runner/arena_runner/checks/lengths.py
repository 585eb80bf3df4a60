"""How many rows are longer than a run's context: they would be left out of it.

Counted with the model's own tokenizer where its file is on this machine, without torch. The chat template's own words
are not counted, so that a row may be a little longer than is told here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena_gitops.spec.job import DatasetCategory
from arena_gitops.spec.wire import CheckRequest, CheckResult

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST = 2000
"""rows that are counted, from the first on"""
FILE = "tokenizer.json"
MANY = 0.1
"""share of rows left out that is worth a warning"""


class Lengths:
    """Sees rows and counts tokens; nothing for a manifest without a context length."""

    def __init__(self, request: CheckRequest, models: Path | None = None) -> None:
        """Prepare; `models` is the folder that names of models are looked up in."""
        network, algorithm, environment = (
            request.manifest.get(name) for name in ("network", "algorithm", "environment")
        )
        said: Any = environment.get("prompt_template") if isinstance(environment, dict) else None
        self._template = "\n".join(map(str, said.values())) if isinstance(said, dict) else ""
        self._longest = _whole(network, "max_context_length")
        self._room = _whole(algorithm, "max_output_tokens") or 1
        self._model = network.get("pretrained_model_name_or_path") if isinstance(network, dict) else None
        self._file = tokenizer_file(str(self._model), models) if self._model and self._longest else None
        self._tokenizer: Tokenizer | None = None
        self._counts: list[int] = []

    def see(self, category: DatasetCategory, texts: Mapping[str, str]) -> None:
        """Count one row."""
        if self._file is None or len(self._counts) >= MOST:
            return
        self._counts.append(self._tokens(" ".join(self._parts(category, texts))))

    def verdict(self, address: str) -> CheckResult | None:
        """What was found; None where there is nothing to compare with."""
        if not self._longest:
            return None
        if not self._counts:
            text = f"not measured: {self._model} has no {FILE} on this machine; the run tells"
            return CheckResult(address=address, name="lengths", status="pass", message=text)
        usable = self._longest - self._room
        lost = sum(count > usable for count in self._counts)
        limit = f"max_context_length {self._longest} with {self._room} tokens kept free"
        rows = f"{len(self._counts)} rows" if len(self._counts) < MOST else f"the first {MOST} rows"
        typical = f"{statistics.median(self._counts):g} tokens in the middle, {max(self._counts)} at most"
        if not lost:
            text = f"{rows} fit {limit}: {typical}"
            return CheckResult(address=address, name="lengths", status="pass", message=text)
        share = lost / len(self._counts)
        text = f"{lost} of {rows} ({share:.1%}) do not fit {limit} and would be left out: {typical}"
        status: Any = "fail" if share == 1 else "warn" if share >= MANY else "pass"
        return CheckResult(address=address, name="lengths", status=status, message=text)

    def _parts(self, category: DatasetCategory, texts: Mapping[str, str]) -> list[str]:
        match category:
            case DatasetCategory.PREFERENCE:
                answers = [max(texts["chosen"], texts["rejected"], key=len)]
                asked = texts["prompt"]
            case DatasetCategory.SFT:
                asked, answers = texts["prompt"], [texts["target"]]
            case _:
                asked, answers = texts["question"], []
        return [self._template, asked, *answers]

    def _tokens(self, text: str) -> int:
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(self._file))
            self._tokenizer.no_truncation()
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


def tokenizer_file(model: str, models: Path | None) -> Path | None:
    """Where the tokenizer of a model lies on this machine; nothing is fetched."""
    folders = [Path(model).expanduser()]
    if models is not None:
        folders += [models / model, models / model.rpartition("/")[2].lower()]
    return next((folder / FILE for folder in folders if (folder / FILE).is_file()), _fetched_before(model))


def _fetched_before(model: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, FILE)
    except HFValidationError:
        return None  # a folder's path is no name of the hub
    return Path(found) if isinstance(found, str) else None


def _whole(section: Any, name: str) -> int:
    value = section.get(name) if isinstance(section, dict) else None
    return int(value) if isinstance(value, int | float) else 0
