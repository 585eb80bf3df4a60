"""Numbers as people read them, in one place so that the live table and the plain lines agree."""

from __future__ import annotations

from arena_gitops.spec.job import Lineage, TestScores

UNKNOWN = "-"


def score(value: float | None) -> str:
    """A reward or fitness."""
    return UNKNOWN if value is None else f"{value:.3f}"


def rate(value: float | None) -> str:
    """Tokens per second."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """`42s`, `3m 05s`, `2h 10m`."""
    if seconds is None:
        return UNKNOWN
    total = max(0, round(seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m {total % 60:02d}s"
    return f"{total // 3600}h {total % 3600 // 60:02d}m"


def lineage(record: Lineage) -> str:
    """What evolution did to one place: `generation 2: m1 <- clone of m0 (0.51 < 0.62), lr 0.0003 -> 0.00036`."""
    kept = record.parent == record.member
    told = f"generation {record.generation}: m{record.member} "
    if kept:
        told += f"kept ({score(record.fitness)})"
    else:
        told += f"<- clone of m{record.parent} ({score(record.fitness)} -> {score(record.parent_fitness)})"
    if record.mutation is None:
        return told
    if record.old is None or record.new is None:
        return f"{told}, mutated: {record.mutation}"
    return f"{told}, {record.mutation} {record.old:.4g} -> {record.new:.4g}"


def test_scores(scores: tuple[TestScores, ...]) -> list[str]:
    """Base and best side by side, one line per component: mean and standard error of each, and the gain."""
    by_label = {s.label: s for s in scores}
    base, best = by_label.get("base"), by_label.get("best")
    present = [s for s in (base, best) if s is not None]
    if not present:
        return []
    names = list(dict.fromkeys(name for s in present for name in s.mean))
    width = max(map(len, names))
    rows = " and ".join(sorted({f"{s.rows} rows" for s in present}))
    lines = [f"test split ({rows}, used by neither training nor selection):"]
    for name in names:
        parts = [f"{s.label} {_with_error(s, name)}" for s in present]
        if base and best and name in base.mean and name in best.mean:
            parts.append(f"gain {_gain(base, best, name)}")
        lines.append(f"  {name:<{width}}  " + "  ".join(parts))
    return lines


def _with_error(scores: TestScores, name: str) -> str:
    if name not in scores.mean:
        return UNKNOWN
    error = scores.stderr.get(name)
    return f"{scores.mean[name]:.3f}" + (f" ± {error:.3f}" if error is not None else "")


def _gain(base: TestScores, best: TestScores, name: str) -> str:
    gain = best.mean[name] - base.mean[name]
    errors = (base.stderr.get(name), best.stderr.get(name))
    if errors[0] is None or errors[1] is None:
        return f"{gain:+.3f}"
    combined = float((errors[0] ** 2 + errors[1] ** 2) ** 0.5)
    times = f" ({gain / combined:+.1f} standard errors)" if combined > 0 else ""
    return f"{gain:+.3f}{times}"
