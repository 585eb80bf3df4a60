"""`python -m arena_gitops.cli`: the command without its script.

`python -m` looks for modules in the working directory first, which is somebody's repository: it must not be able to
stand in for a library of ours.
"""

import os
import sys

sys.path[:] = [entry for entry in sys.path if entry not in {"", os.getcwd()}]  # noqa: PTH109 - as Python wrote it

from arena_gitops.cli.main import main  # noqa: E402 - only now

main()
