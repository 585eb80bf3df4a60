"""Who we are, in words that tell somebody who has to wait whom to ask."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Mapping

from arena_gitops.apply.lease import Claim

LONGEST = 200


def claim(environ: Mapping[str, str], *, patience_s: float, operation: str = "apply") -> Claim:
    """A claim in the name of the workflow run, or of the person at this machine."""
    return Claim(_holder(environ)[:LONGEST], operation, _run_url(environ), patience_s)


def _holder(environ: Mapping[str, str]) -> str:
    if environ.get("GITHUB_ACTIONS") == "true":
        return f"{environ.get('GITHUB_ACTOR', 'somebody')} by workflow {environ.get('GITHUB_WORKFLOW', '')}".strip()
    try:
        person = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container without a name for its user
        person = "somebody"
    return f"{person}@{platform.node() or 'a machine'}"


def _run_url(environ: Mapping[str, str]) -> str | None:
    server, repository, run = (
        environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    )
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else None
