"""A server that counts its commits, and kills itself before or after the one it is told: `DIE_AT=before:7`.

The very server otherwise: SQLAlchemy's one door to the driver's commit is all that is changed.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from sqlalchemy.engine.default import DefaultDialect

from arena_runner.cli import main

MOMENT, _, NUMBER = os.environ.get("DIE_AT", "never:0").partition(":")
COUNT = Path(os.environ["COMMITS"])

commit = DefaultDialect.do_commit
lock = threading.Lock()
made = 0


def do_commit(dialect, connection):
    global made  # noqa: PLW0603 - one process, one count
    with lock:
        made += 1
        with COUNT.open("ab") as file:
            file.write(b".")
        due = made == int(NUMBER)
        if due and MOMENT == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(dialect, connection)
        if due and MOMENT == "after":
            os.kill(os.getpid(), signal.SIGKILL)


DefaultDialect.do_commit = do_commit

if __name__ == "__main__":
    sys.exit(main())
