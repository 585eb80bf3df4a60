"""What a reward pays, before and after: recorded by `arena check --run`, shown by a plan that itself runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.wire import SampleScore

TOLERANCE = 1e-9
SHOWN = 8
"""Samples that are named; all of them count."""


class ScorePair(Frozen):
    """One sample under the stored and the new reward."""

    sample: str
    expect: float | None = None
    """what its author wants, of a case"""
    old: float | None = None
    new: float | None = None
    old_error: str = ""
    new_error: str = ""

    @property
    def differs(self) -> bool:
        """Whether the two rewards disagree about it."""
        if self.old is None or self.new is None:
            return (self.old, self.old_error) != (self.new, self.new_error)
        return abs(self.old - self.new) > TOLERANCE


class ScoreDiff(Frozen):
    """One reward on the same samples, and which two contents were compared."""

    address: str
    old_files: dict[str, str]
    new_files: dict[str, str]
    pairs: tuple[ScorePair, ...]

    @property
    def changed(self) -> tuple[ScorePair, ...]:
        """The samples that are paid otherwise."""
        return tuple(pair for pair in self.pairs if pair.differs)

    def means(self) -> tuple[float, float] | None:
        """Mean score before and after, over the samples that both could score."""
        both = [(p.old, p.new) for p in self.pairs if p.old is not None and p.new is not None]
        if not both:
            return None
        return sum(old for old, _ in both) / len(both), sum(new for _, new in both) / len(both)


def paired(
    address: str,
    files: tuple[Mapping[str, str], Mapping[str, str]],
    old: Iterable[SampleScore],
    new: Iterable[SampleScore],
) -> ScoreDiff:
    """Lay the scores of two contents of a reward beside each other; only samples of both count."""
    before = {score.sample: score for score in old}
    pairs = tuple(_pair(before[score.sample], score) for score in new if score.sample in before)
    return ScoreDiff(address=address, old_files=dict(files[0]), new_files=dict(files[1]), pairs=pairs)


def _pair(old: SampleScore, new: SampleScore) -> ScorePair:
    return ScorePair(
        sample=new.sample,
        expect=new.expect,
        old=old.total,
        new=new.total,
        old_error=old.error,
        new_error=new.error,
    )
