"""What we need of GitHub's API: comments of a pull request, and which pull request a commit came from.

Refusals for asking too often are waited out as GitHub asks (`Retry-After`, `X-RateLimit-Reset`), within a
limit. A comment is looked for on every page: a busy pull request has hundreds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from arena_gitops.errors import AuthError, PlatformError
from arena_gitops.platforms.door import ATTEMPTS, JSON, Door, Request, json_body, refusal

if TYPE_CHECKING:
    import httpx

API = {"X-GitHub-Api-Version": "2022-11-28"}
ACTIONS_LOGIN = "github-actions[bot]"
"""Author of everything written with a job's own token, which may not ask who it is."""
PATIENCE_S = 120.0
TOO_OFTEN = frozenset({403, 429})
PER_PAGE = "100"
MOST_PAGES = 100

Value = TypeVar("Value")


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class User(_Answer):
    """Who wrote something."""

    login: str


class Comment(_Answer):
    """One comment of a pull request's conversation."""

    id: int
    body: str | None = None
    user: User | None = None


class Issue(_Answer):
    """One issue."""

    number: int
    body: str | None = None
    user: User | None = None


class Commit(_Answer):
    """One end of a pull request."""

    sha: str
    ref: str


class Pull(_Answer):
    """A pull request."""

    number: int
    head: Commit
    base: Commit
    merged_at: str | None = None
    merge_commit_sha: str | None = None


_COMMENTS = TypeAdapter(list[Comment])
_PULLS = TypeAdapter(list[Pull])
_ISSUES = TypeAdapter(list[Issue])


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and how to let it pass."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


class GitHub:
    """One repository on GitHub, seen with one token."""

    def __init__(
        self,
        api_url: str,
        token: str,
        repository: str,
        *,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._door = Door(api_url, token)
        self._repository = f"/repos/{repository}"
        self._clock = clock or Clock()
        self._patience_s = patience_s

    def close(self) -> None:
        """Drop the connections."""
        self._door.close()

    def login(self) -> str:
        """Who we are. A job's token may not ask, and is always the same user."""
        answer = self._send(
            Request("GET", "/user", headers=API, repeatable=True), accept=frozenset({401, 403})
        )
        return User.model_validate_json(answer.content).login if answer.is_success else ACTIONS_LOGIN

    def comments(self, number: int) -> Iterator[Comment]:
        """Every comment of a pull request, the oldest first."""
        yield from self._pages(f"{self._repository}/issues/{number}/comments", _COMMENTS)

    def post(self, number: int, body: str) -> None:
        """Write a new comment."""
        self._write("POST", f"{self._repository}/issues/{number}/comments", {"body": body})

    def edit(self, comment: int, body: str) -> None:
        """Put other text in the place of a comment's."""
        self._write("PATCH", f"{self._repository}/issues/comments/{comment}", {"body": body}, repeatable=True)

    def open_issues(self, label: str) -> Iterator[Issue]:
        """The open issues of a label."""
        yield from self._pages(f"{self._repository}/issues", _ISSUES, {"state": "open", "labels": label})

    def open_issue(self, title: str, body: str, label: str) -> None:
        """Write a new issue; GitHub makes the label if there is none."""
        self._write("POST", f"{self._repository}/issues", {"title": title, "body": body, "labels": [label]})

    def edit_issue(self, number: int, body: str) -> None:
        """Put other text in the place of an issue's."""
        self._write("PATCH", f"{self._repository}/issues/{number}", {"body": body}, repeatable=True)

    def close_issue(self, number: int) -> None:
        """Say that an issue is done with."""
        self._write("PATCH", f"{self._repository}/issues/{number}", {"state": "closed"}, repeatable=True)

    def merged_pull(self, sha: str) -> Pull | None:
        """The merged pull request a commit of the base branch came from, however it was merged."""
        found = [p for p in self._pages(f"{self._repository}/commits/{sha}/pulls", _PULLS) if p.merged_at]
        exact = [pull for pull in found if pull.merge_commit_sha == sha]
        return next(iter(exact or found), None)

    def open_pull(self, owner: str, branch: str, sha: str) -> Pull | None:
        """The open pull request of somebody's branch, if that branch still ends in this commit."""
        params = {"state": "open", "head": f"{owner}:{branch}"}
        found = self._pages(f"{self._repository}/pulls", _PULLS, params)
        return next((pull for pull in found if pull.head.sha == sha), None)

    def _pages(
        self, path: str, adapter: TypeAdapter[list[Value]], params: dict[str, str] | None = None
    ) -> Iterator[Value]:
        for page in range(1, MOST_PAGES + 1):
            query = {**(params or {}), "per_page": PER_PAGE, "page": str(page)}
            answer = self._send(Request("GET", path, params=query, headers=API, repeatable=True))
            try:
                yield from adapter.validate_json(answer.content)
            except ValidationError as error:
                raise PlatformError(f"GET {path} answered something else than GitHub does") from error
            if 'rel="next"' not in answer.headers.get("Link", ""):
                return

    def _write(self, method: str, path: str, data: dict[str, Any], *, repeatable: bool = False) -> None:
        request = Request(method, path, headers={**API, **JSON}, body=json_body(data), repeatable=repeatable)
        try:
            self._send(request)
        except AuthError as error:
            raise AuthError(
                f"{error}; the job needs `permissions: pull-requests: write` (for issues `issues: write`), "
                "which a pull request from a fork never has"
            ) from error

    def _send(self, request: Request, *, accept: frozenset[int] = frozenset()) -> httpx.Response:
        """Send, and send again after as long as GitHub asks for; nothing was done by a request it refused so."""
        waited = 0.0
        for _ in range(ATTEMPTS):
            answer = self._door.call(request, accept=accept | TOO_OFTEN)
            pause = self._pause(answer)
            if pause is None:
                break
            waited += pause
            if waited > self._patience_s:
                raise PlatformError(
                    f"GitHub asks to wait {pause:.0f} s before {request.method} {request.path}"
                )
            self._clock.sleep(pause)
        if answer.is_success or answer.status_code in accept:
            return answer
        raise refusal(answer.status_code, answer.text, f"{request.method} {request.path}")

    def _pause(self, answer: httpx.Response) -> float | None:
        """Seconds to wait before asking again; None for an answer that is final."""
        if answer.status_code not in TOO_OFTEN:
            return None
        after = answer.headers.get("Retry-After", "")
        if after.isdigit():
            return float(after)
        reset = answer.headers.get("X-RateLimit-Reset", "")
        if answer.headers.get("X-RateLimit-Remaining") == "0" and reset.isdigit():
            return max(1.0, float(reset) - self._clock.now())
        return 60.0 if answer.status_code == 429 else None  # GitHub's advice for a limit without a time
