"""How much of the machine a run takes: chosen once at its start, stored, and kept by every later segment.

Rows in flight and tokens per backward are independent of the number of members. They decide how work is packed, and
packing decides the last bits of a sum, so a resumed run must not choose again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil
import torch

from arena_runner.models import compute_dtype

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
_ROWS = {"cpu": 64, "cuda": 512}
_TOKENS = {"cpu": 4096, "cuda": 16384}
_BUSY = 0.5
"""share of a core's load above which something else is said to run"""


@dataclass(frozen=True, slots=True)
class Budgets:
    """Fixed for the life of a run."""

    device: str
    dtype: str
    threads: int
    rows_in_flight: int
    tokens_per_backward: int

    @property
    def torch_dtype(self) -> torch.dtype:
        """The compute dtype of base and activations."""
        return _DTYPES[self.dtype]


def choose() -> Budgets:
    """Look at the machine; `ARENA_{DEVICE,DTYPE,THREADS,ROWS_IN_FLIGHT,TOKENS_PER_BACKWARD}` win over what is seen."""
    device = os.environ.get("ARENA_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = torch.device(device).type
    dtype = os.environ.get("ARENA_DTYPE") or str(compute_dtype(torch.device(device))).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise ValueError(f"ARENA_DTYPE={dtype}: expected one of {', '.join(_DTYPES)}")
    return Budgets(
        device=device,
        dtype=dtype,
        threads=_from_env("ARENA_THREADS") or free_threads(),
        rows_in_flight=_from_env("ARENA_ROWS_IN_FLIGHT") or _ROWS.get(kind, 64),
        tokens_per_backward=_from_env("ARENA_TOKENS_PER_BACKWARD") or _TOKENS.get(kind, 4096),
    )


def free_threads() -> int:
    """Physical cores when the machine is idle, one when something else runs, never more than `OMP_NUM_THREADS`."""
    cores = psutil.cpu_count(logical=False) or 1
    limit = _from_env("OMP_NUM_THREADS") or cores
    busy = psutil.getloadavg()[0] > _BUSY * cores
    return 1 if busy else max(1, min(cores, limit))


def _from_env(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{name}={text}: expected a whole number of at least 1")
    return int(text)
