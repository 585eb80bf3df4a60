"""Packages that came from the server, for the interpreter of user code; kept as base models are."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from packaging import tags

from arena_gitops.spec.worker import WheelTarget
from arena_runner.model_cache import keep
from arena_runner.patience import patiently
from arena_runner.sandbox.packages import Wheels
from arena_runner.server_link import ServerLink

NAME = "wheels"


def wheels_folder(link: ServerLink, cache: Path, patience_s: float) -> Wheels:
    """The wheels of the claimed job; waits while the server resolves them."""
    target = this_interpreter()
    listing = patiently(lambda: link.wheel_listing(target), patience_s)
    root = cache / listing.digest.removeprefix("sha256:")[:32]
    keep(root, NAME, listing.files, partial(link.get_wheel, target), patience_s)
    return Wheels(root / NAME, listing.digest)


def this_interpreter() -> WheelTarget:
    """The one that user code runs on here: the same as ours."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return WheelTarget(
        python=version, implementation=tags.interpreter_name(), platform=tuple(tags.platform_tags())
    )
