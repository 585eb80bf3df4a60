"""How much of the machine a run takes: chosen once at its start, stored, and kept by every later segment.

Rows in flight and tokens per backward are independent of the number of members. They decide how work is packed, and
packing decides the last bits of a sum, so a resumed run must not choose again.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil
import torch

from arena_runner.models import compute_dtype

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
_ENGINES = ("torch", "vllm")
_ROWS = {"cpu": 64, "cuda": 512}
_TOKENS = {"cpu": 1024, "cuda": 16384}  # on a CPU more is no faster and costs 0.7 GB per thousand (135M)
_AFFINITY = hasattr(os, "sched_getaffinity")  # Linux only


@dataclass(frozen=True, slots=True)
class Budgets:
    """Fixed for the life of a run."""

    device: str
    dtype: str
    threads: int
    rows_in_flight: int
    tokens_per_backward: int
    engine: str = "torch"
    """what samples completions: `torch`, in this process, or `vllm`, in one beside it"""

    @property
    def torch_dtype(self) -> torch.dtype:
        """The compute dtype of base and activations."""
        return _DTYPES[self.dtype]


def choose() -> Budgets:
    """Look at the machine; `ARENA_{DEVICE,DTYPE,THREADS,ROWS_IN_FLIGHT,TOKENS_PER_BACKWARD,ENGINE}` win over what is seen."""
    device = os.environ.get("ARENA_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = torch.device(device).type
    dtype = os.environ.get("ARENA_DTYPE") or str(compute_dtype(torch.device(device))).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise ValueError(f"ARENA_DTYPE={dtype}: expected one of {', '.join(_DTYPES)}")
    engine = os.environ.get("ARENA_ENGINE") or "torch"
    if engine not in _ENGINES:
        raise ValueError(f"ARENA_ENGINE={engine}: expected one of {', '.join(_ENGINES)}")
    return Budgets(
        device=device,
        dtype=dtype,
        threads=_from_env("ARENA_THREADS") or free_threads(),
        rows_in_flight=_from_env("ARENA_ROWS_IN_FLIGHT") or _ROWS.get(kind, 64),
        tokens_per_backward=_from_env("ARENA_TOKENS_PER_BACKWARD") or _TOKENS.get(kind, 1024),
        engine=engine,
    )


def tokens_are_set() -> bool:
    """Whether a person chose the tokens per backward, memory or not."""
    return "ARENA_TOKENS_PER_BACKWARD" in os.environ


def free_threads() -> int:
    """Cores that nothing else has been working on; never more than `OMP_NUM_THREADS`, never less than one."""
    cores = min(
        psutil.cpu_count(logical=False) or 1,
        len(os.sched_getaffinity(0)) if _AFFINITY else os.cpu_count() or 1,
    )
    limit = _from_env("OMP_NUM_THREADS") or cores
    return max(1, min(limit, round(cores - busy_cores())))


def busy_cores(seconds: float = 0.5, *, settled_s: float = 60.0) -> float:
    """Cores that other processes use now. Those that began just now are starting up and will be quiet soon."""
    now = time.time()
    before = {
        process: _cpu_seconds(process)
        for process in psutil.process_iter(["create_time"])
        if process.pid != os.getpid() and now - (process.info["create_time"] or now) > settled_s
    }
    time.sleep(seconds)
    return sum(max(0.0, _cpu_seconds(process) - used) for process, used in before.items()) / seconds


def _cpu_seconds(process: psutil.Process) -> float:
    """Time a process has computed; 0 once it is gone or was never ours to look at."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _from_env(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{name}={text}: expected a whole number of at least 1")
    return int(text)
