"""The published manifests and what becomes of each. `python tests/support/published.py` writes the table of docs/manifests.md."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from arena_gitops.spec.manifest import ManifestError, parse_manifest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("ARENA_SHARED") or ROOT.parent / "shared") / "manifests"
PAGE = ROOT / "docs" / "manifests.md"
HEAD = "| manifest | algorithm | |\n|---|---|---|\n"
MENDED: dict[str, dict[str, Any]] = {
    "llm_finetuning/gspo.yaml": {"algorithm.group_size": 8},
    "multi_agent/maddpg.yaml": {"algorithm.learn_step": 20},
    "ppo/ppo_recurrent.yaml": {"algorithm.learn_step": 8192},
}
"""what makes a manifest train that contradicts itself"""


def read(name: str) -> dict[str, Any]:
    """One of them, as its author wrote it."""
    raw: dict[str, Any] = YAML(typ="safe").load((SHARED / name).read_text(encoding="utf-8"))
    return raw


def names() -> list[str]:
    """All of them; none where the folder is absent."""
    return sorted(path.relative_to(SHARED).as_posix() for path in SHARED.rglob("*.yaml"))


def refused(raw: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> str:
    """The one thing for which a plan refuses it; empty when it trains."""
    try:
        parsed = parse_manifest(raw, overrides=overrides)
    except ManifestError as error:
        return error.problems[0].message
    return parsed.refusals[0].message if parsed.refusals else ""


def table() -> str:
    """What becomes of all, in Markdown."""
    return HEAD + "".join(f"| `{name}` | {' | '.join(_cells(name))} |\n" for name in names())


def _cells(name: str) -> Iterator[str]:
    raw = read(name)
    yield str(raw["algorithm"]["name"])
    why = refused(raw)
    if not why:
        yield "trained"
        return
    mend = MENDED.get(name)
    told = "".join(f"; trained with `{key}: {value}`" for key, value in (mend or {}).items())
    yield f"refused: {why}{told if mend and not refused(raw, mend) else ''}"


def main() -> None:
    """Write the table where the old one was."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    after = rest[rest.index("\n\n") :] if "\n\n" in rest else "\n"
    PAGE.write_text(before + table().rstrip("\n") + after, encoding="utf-8")


if __name__ == "__main__":
    main()
