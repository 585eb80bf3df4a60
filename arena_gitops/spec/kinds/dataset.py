"""A dataset: rows in a file of the repository, or on the Hugging Face hub, and what their columns mean."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator

from arena_gitops.spec.fields import DataFile
from arena_gitops.spec.job import COLUMNS, DatasetCategory, HubDataset
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.references import Referring

_COLUMN: dict[str, JsonValue] = {"type": "string", "minLength": 1}


def _mapping_by_category() -> list[JsonValue]:
    return [
        {
            "if": {"properties": {"category": {"const": category.value}}},
            "then": {
                "properties": {
                    "column_mapping": {
                        "properties": dict.fromkeys(columns, _COLUMN),
                        "required": list(columns),
                        "additionalProperties": False,
                    }
                }
            },
        }
        for category, columns in COLUMNS.items()
    ]


class Dataset(Referring):
    """Rows to train on; exactly one of `file` and `hf` says where they are."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["file"], "properties": {"file": {"type": "string"}}},
                {"required": ["hf"], "properties": {"hf": {"type": "object"}}},
            ],
            "allOf": _mapping_by_category(),
        }
    )

    kind: Literal["Dataset"]
    category: DatasetCategory
    file: DataFile | None = None
    """relative to the document"""
    hf: HubDataset | None = None
    column_mapping: dict[str, Annotated[str, Field(min_length=1)]]
    """role (`question`) → column of the file"""

    @field_validator("column_mapping")
    @classmethod
    def _roles(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        category = info.data.get("category")
        if category is None:
            return value
        wanted = COLUMNS[category]
        if missing := [role for role in wanted if role not in value]:
            raise ValueError(f"a {category} dataset also needs {', '.join(missing)}")
        if extra := sorted(set(value) - set(wanted)):
            raise ValueError(
                f"a {category} dataset has no {', '.join(extra)}; {suggestion(extra[0], wanted)}"
            )
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.hf is None):
            found = "neither" if self.file is None else "both"
            raise ValueError(f"expected exactly one of 'file' and 'hf', got {found}")
        return self
