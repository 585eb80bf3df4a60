"""The `arena` command, which kills itself before, within or after the line of its journal it is told: `DIE_AT=torn:7`.

The very command otherwise: the journal's one way of writing is all that is changed.
"""

import os
import signal
import sys

from arena_gitops.apply.journal import Journal
from arena_gitops.cli.main import run

MOMENT, _, NUMBER = os.environ["DIE_AT"].partition(":")

write = Journal._write
written = 0


def dying(journal, line):
    """Write a line; the one that was named is the last."""
    global written  # noqa: PLW0603 - one process, one count
    written += 1
    due = written == int(NUMBER)
    if due and MOMENT == "torn":
        journal._path.parent.mkdir(parents=True, exist_ok=True)
        with journal._path.open("a") as file:
            file.write('{"seq": 9, "addr')
    if due and MOMENT in {"before", "torn"}:
        os.kill(os.getpid(), signal.SIGKILL)
    write(journal, line)
    if due:
        os.kill(os.getpid(), signal.SIGKILL)


Journal._write = dying

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
