"""What GitHub tells a job, and how a job answers: variables and an event file in; outputs, summary, commands out.

Whatever is printed between the first and the last line of a command quotes a repository that strangers can
change, and a runner obeys any line that begins with `::`. So commands are switched off for the whole of it,
with a token nobody can guess, and on again only for our own annotations.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from arena_gitops.cli.credentials import origin
from arena_gitops.errors import UsageError
from arena_gitops.report.commands import resume, stop

REQUIRED = ("GITHUB_REPOSITORY", "GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "GITHUB_SHA")
PUBLIC_API = "https://api.github.com"


@dataclass(frozen=True, slots=True)
class PullEvent:
    """The pull request a job runs for."""

    number: int
    head: str
    base: str
    fork: bool
    labels: tuple[str, ...] = ()
    closed: bool = False
    merged: bool = False


@dataclass(frozen=True, slots=True)
class OtherRun:
    """The workflow run that a `workflow_run` job follows. What it uploaded may come from a stranger."""

    head: str
    owner: str
    branch: str
    numbers: tuple[int, ...]
    url: str


@dataclass(slots=True)
class Actions:
    """One job."""

    environ: Mapping[str, str]
    event: Mapping[str, Any]
    _token: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Actions:
        """Read what GitHub left for us; raises UsageError with everything that is missing."""
        missing = [name for name in REQUIRED if not environ.get(name)]
        if missing:
            raise UsageError(f"this is for GitHub Actions: {', '.join(missing)} not set (see `arena plan`)")
        _require_pinned_server(environ)
        path = Path(environ["GITHUB_EVENT_PATH"])
        try:
            event = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"GITHUB_EVENT_PATH {path} cannot be read as JSON: {error}") from error
        if not isinstance(event, dict):
            raise UsageError(f"GITHUB_EVENT_PATH {path} holds no event")
        actions = cls(environ, event)
        _print(stop(actions._token))
        return actions

    def close(self) -> None:
        """Let the runner obey commands again."""
        _print(resume(self._token))

    def annotate(self, lines: Iterable[str]) -> None:
        """Say something to the runner."""
        _print(resume(self._token))
        for line in lines:
            _print(line)
        self._token = secrets.token_hex(16)
        _print(stop(self._token))

    def output(self, **values: str) -> None:
        """Set outputs of the step, where GitHub wants any."""
        if path := self.environ.get("GITHUB_OUTPUT"):
            end = secrets.token_hex(16)
            text = "".join(f"{name}<<{end}\n{value}\n{end}\n" for name, value in values.items())
            _append(path, text)

    def summarise(self, text: str) -> None:
        """Add to the job's page, where GitHub wants it."""
        if path := self.environ.get("GITHUB_STEP_SUMMARY"):
            _append(path, text)

    @property
    def repository(self) -> str:
        """`owner/name`."""
        return self.environ["GITHUB_REPOSITORY"]

    @property
    def sha(self) -> str:
        """The commit that is checked out."""
        return self.environ["GITHUB_SHA"]

    @property
    def api_url(self) -> str:
        """Address of GitHub's API."""
        return self.environ.get("GITHUB_API_URL") or PUBLIC_API

    @property
    def token(self) -> str | None:
        """The job's token."""
        return self.environ.get("GITHUB_TOKEN") or None

    @property
    def run_url(self) -> str:
        """Where the job's page is."""
        return self._run_url(self.environ.get("GITHUB_RUN_ID"))

    def _run_url(self, run: object) -> str:
        server = self.environ.get("GITHUB_SERVER_URL")
        return f"{server}/{self.repository}/actions/runs/{run}" if server and run else ""

    @property
    def pull(self) -> PullEvent | None:
        """The pull request this job runs for, if it does."""
        found = self.event.get("pull_request")
        if not isinstance(found, dict):
            return None
        head = found["head"]
        source = (head.get("repo") or {}).get("full_name")  # the repository of a fork may be gone
        labels = tuple(str(label["name"]) for label in found.get("labels") or ())
        closed = self.event.get("action") == "closed" or found.get("state") == "closed"
        return PullEvent(
            number=int(found["number"]),
            head=head["sha"],
            base=found["base"]["sha"],
            fork=source != self.repository,
            labels=labels,
            closed=closed,
            merged=bool(found.get("merged")),
        )

    @property
    def base(self) -> str:
        """The commit that what is checked out is to join, of a pull request or a merge queue; else empty."""
        if (pull := self.pull) is not None:
            return pull.base
        queued = self.event.get("merge_group")
        return str(queued.get("base_sha") or "") if isinstance(queued, dict) else ""

    @property
    def other_run(self) -> OtherRun | None:
        """The run this job follows, if it does."""
        found = self.event.get("workflow_run")
        if not isinstance(found, dict):
            return None
        owner = (((found.get("head_repository") or {}).get("owner")) or {}).get("login", "")
        numbers = tuple(int(pull["number"]) for pull in found.get("pull_requests") or ())
        url = self._run_url(found.get("id"))
        return OtherRun(found["head_sha"], owner, found.get("head_branch") or "", numbers, url)


def _require_pinned_server(environ: Mapping[str, str]) -> None:
    """A key needs an address that no pull request can change."""
    if not environ.get("ARENA_API_KEY"):
        return
    url = environ.get("ARENA_BASE_URL")
    if not url or not origin(url).startswith(("http://", "https://")):
        raise UsageError(
            "ARENA_API_KEY is set without ARENA_BASE_URL: in CI the server must be named by the workflow, "
            "because a pull request can change the address in arena.yaml"
        )


def _append(path: str, text: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)


def _print(line: str) -> None:
    click.echo(line)
