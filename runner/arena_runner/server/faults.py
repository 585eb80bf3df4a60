"""What goes wrong outside of us (the disk, the database) in words: for an HTTP answer, and for the command line.

Whatever is not recognised here is a fault of ours and stays an exception.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError


@dataclass(frozen=True, slots=True)
class Fault:
    """As `ErrorBody` has it."""

    status: int
    code: str
    message: str


DISK_FULL = Fault(
    507, "disk-full", "the server's disk is full; nothing was stored. Free some space there and try again"
)
READ_ONLY = Fault(
    503,
    "read-only",
    "the server's disk is read-only for it; nothing was stored. Make it writable and try again",
)
NOT_A_FOLDER = Fault(503, "not-a-folder", "there is a file where a folder should be")
BUSY = Fault(503, "database-busy", "the database did not get to this in time; nothing was stored. Try again")
AWAY = Fault(
    503, "database-away", "the database does not answer; nothing was stored. Try again when it is back"
)
BROKEN = Fault(
    503, "disk-failing", "the server's disk fails to read or write its database; look at the server's machine"
)
NO_ROOM = Fault(
    422, "bad-request", "a value is none that the database can keep: a number too large, or a NUL"
)

SYSTEM = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), DISK_FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), READ_ONLY),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), NOT_A_FOLDER),
}
SQLITE = {
    "database or disk is full": DISK_FULL,
    "readonly database": READ_ONLY,
    "unable to open database file": READ_ONLY,
    "database is locked": BUSY,
    "disk I/O error": BROKEN,
}
POSTGRESQL = {
    "53100": DISK_FULL,
    "25006": READ_ONLY,
    "55P03": BUSY,
    "53300": BUSY,  # too many connections
    "22": NO_ROOM,
    "08": AWAY,
    "57P": AWAY,
}
"""By SQLSTATE or the beginning of one."""


def fault_of(problem: BaseException) -> Fault | None:
    """The fault behind an exception; None when it is no such thing."""
    if isinstance(problem, DBAPIError):
        return _of_database(problem)
    if isinstance(problem, PoolTimeoutError):
        return BUSY
    if isinstance(problem, OverflowError) and "SQLite" in str(problem):
        return NO_ROOM
    return SYSTEM.get(problem.errno or 0) if isinstance(problem, OSError) else None


def _of_database(problem: DBAPIError) -> Fault | None:
    text = str(problem.orig)
    code = getattr(problem.orig, "sqlstate", None)
    for known, fault in POSTGRESQL.items():
        if code is not None and code.startswith(known):
            return fault
    for known, fault in SQLITE.items():
        if known in text:
            return fault
    if "NUL" in text:
        return NO_ROOM
    away = problem.connection_invalidated or "connection" in text
    return AWAY if away else None
