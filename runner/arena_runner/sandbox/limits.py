"""How much user code may use, and which walls stand around it.

Plain values. `walls.py` raises the walls inside the child; `process.py` enforces the deadlines from outside.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Ceilings of one sandboxed process."""

    call_timeout_s: float = 10.0
    """wall clock of one call"""
    import_timeout_s: float = 60.0
    """wall clock from the start of the process until the user's module is imported"""
    memory_bytes: int = 4 * GIB
    """address space of one process"""
    file_bytes: int = 64 * MIB
    """size of one written file, and of the temporary folder where it is a file system of its own"""
    open_files: int = 256
    processes: int = 64
    output_bytes: int = 64 * KIB
    """what is kept of everything printed; the rest is read and dropped"""
    calls_per_process: int = 10_000
    """a worker that has served so many calls is replaced, so that leaks stay small"""


@dataclass(frozen=True, slots=True)
class Wall:
    """One measure of isolation, whether it stands, and if not, why."""

    name: str
    raised: bool
    why: str = ""

    def __str__(self) -> str:
        return (
            f"{self.name}: {'raised' if self.raised else 'NOT raised'}{f' ({self.why})' if self.why else ''}"
        )
