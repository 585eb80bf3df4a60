"""What planning is told about the insides of files, since it reads none itself.

`arena_gitops.evidence` gathers it, bounded in time and memory. Without it a plan is still right: every change of a
file is then a change of its content, and no diff is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from arena_gitops.plan.code import FileDiff
from arena_gitops.plan.cosmetic import Pair
from arena_gitops.plan.model import Change
from arena_gitops.plan.rows import DataDiff


@dataclass(frozen=True, slots=True)
class Evidence:
    """Findings by address."""

    equivalent: frozenset[Pair] = frozenset()
    """files, old and new digest, that behave the same"""
    code: Mapping[str, tuple[FileDiff, ...]] = field(default_factory=lambda: MappingProxyType({}))
    data: Mapping[str, DataDiff] = field(default_factory=lambda: MappingProxyType({}))

    def shown_on(self, change: Change) -> Change:
        """The change with what was found about its files."""
        if not change.action.acts or change.action.removes:
            return change
        found = {"code": self.code.get(change.address), "data": self.data.get(change.address)}
        told = {name: value for name, value in found.items() if value}
        return change.model_copy(update=told) if told else change


NO_EVIDENCE = Evidence()
