"""Why a job cannot begin, as far as it decides who must do something about it."""

from __future__ import annotations

from arena_gitops.errors import ArenaError


class InputError(ArenaError):
    """What the job names cannot be had: its author must mend it, and trying again changes nothing."""


class OutsideError(ArenaError):
    """Something outside that the job needs (a hub, a package index) does not answer; in a while it may."""
