"""Rewards scored a second by the sandbox, for a reward that matches a pattern: `python runner/bench/scoring.py`.

Clock and CPU seconds of this process and of everything in the sandboxes, by the number of workers. The bare loop is the
same function called in this process.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from pathlib import Path

from arena_gitops.spec.job import RewardInput
from arena_runner.sandbox import RewardPool, ScoreRow

REWARD = Path(__file__).resolve().parents[2] / "examples" / "gsm8k-tutorial" / "rewards" / "gsm8k.py"
ANSWER = "6 * 7 = 42\n#### 42"
TEXT = "<think>\nsix times seven, which is six tens and two less eighteen\n</think>\n<answer>42</answer>"


def rows(count: int) -> list[ScoreRow]:
    """Completions of about a hundred tokens, all different."""
    return [ScoreRow("What is 6 * 7?", ANSWER, f"{'Let me see. ' * 30}{n}\n{TEXT}") for n in range(count)]


def bare(count: int) -> float:
    """Rewards a CPU second without a sandbox."""
    spec = importlib.util.spec_from_file_location("bare", REWARD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    begun = time.process_time()
    for row in rows(count):
        module.reward(row.question, row.answer, row.completion)
    return count / (time.process_time() - begun)


def measured(workers: int, count: int) -> tuple[float, float, float]:
    """Clock, CPU of this process and CPU of the sandboxes, in seconds, of one call that scores all."""
    reward = RewardInput(address="reward/gsm8k", files={REWARD.name: "sha256:" + "0" * 64}, entry=REWARD.name)
    with RewardPool(reward, REWARD.parent, workers=workers) as pool:
        pool.score(rows(64 * workers))  # every worker has started
        children = sandboxed()
        own, begun = time.process_time(), time.perf_counter()
        scores = pool.score(rows(count))
        taken = time.perf_counter() - begun, time.process_time() - own, sandboxed() - children
        assert {score.total for score in scores} == {scores[0].total}
        print("walls:", "; ".join(map(str, pool.walls)))
    return taken


def sandboxed() -> float:
    """CPU seconds of every living process below this one."""
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(folder.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / ticks
    below, total = {os.getpid()}, 0.0
    for pid in sorted(parents):
        if parents[pid][0] in below:
            below.add(pid)
            total += parents[pid][1]
    return total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--count", type=int, default=9_000, help="below 10,000 a worker: then none is replaced meanwhile"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    print(
        f"bare loop: {bare(options.count):,.0f} rewards per CPU second; load average {os.getloadavg()[0]:.1f}"
    )
    for workers in options.workers:
        clock, own, inside = measured(workers, options.count)
        print(
            f"{workers} workers: {options.count / clock:,.0f} rewards/s by the clock, "
            f"{options.count / (own + inside):,.0f} per CPU second ({clock:.2f} s; CPU: {own:.2f} here, {inside:.2f} inside)"
        )


if __name__ == "__main__":
    main()
