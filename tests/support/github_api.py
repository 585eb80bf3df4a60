"""A loopback stand-in for GitHub's API with the limits of the real one.

Comments of more than 65,536 characters are 422, writing with a fork's token is 403, a page has 30 entries
whatever is asked for, a job's token may not ask who it is, and asking too often is 403 or 429 with Retry-After.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

REPOSITORY = "team/infra"
JOB_TOKEN = "job-token"
FORK_TOKEN = "fork-token"
PERSON_TOKEN = "person-token"
LOGINS = {JOB_TOKEN: "github-actions[bot]", FORK_TOKEN: "github-actions[bot]", PERSON_TOKEN: "ada"}
LONGEST_BODY = 65_536
PAGE = 30

Answer = tuple[int, Any, dict[str, str]]
NOT_FOUND: Answer = (404, {"message": "Not Found"}, {})


@dataclass
class GitHubApi:
    url: str = ""
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    refusals: list[Answer] = field(default_factory=list)
    """answered first, once each"""
    _id: int = 1000

    def say(self, number: int, login: str, body: str) -> None:
        self._id += 1
        entry = {"id": self._id, "body": body, "user": {"login": login}}
        self.comments.setdefault(number, []).append(entry)

    def bodies(self, number: int, login: str = "github-actions[bot]") -> list[str]:
        return [c["body"] for c in self.comments.get(number, []) if c["user"]["login"] == login]

    def pull(self, number: int, head: str, *, merged_as: str | None = None, of: str = "team:topic") -> None:
        self.pulls = [pull for pull in self.pulls if pull["number"] != number]
        entry = {
            "number": number,
            "head": {"sha": head, "ref": of.partition(":")[2], "label": of},
            "base": {"sha": "b" * 40, "ref": "main"},
            "merged_at": "2026-01-01T00:00:00Z" if merged_as else None,
            "merge_commit_sha": merged_as,
        }
        self.pulls.append(entry)

    def answer(self, method: str, target: str, token: str, body: dict[str, Any]) -> Answer:
        self.asked.append(f"{method} {target}")
        if self.refusals:
            return self.refusals.pop(0)
        if token not in LOGINS:
            return 401, {"message": "Bad credentials"}, {}
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if method == "GET":
            return self._read(path, query, token)
        if token == FORK_TOKEN:
            return 403, {"message": "Resource not accessible by integration"}, {}
        return self._write(method, path, body, LOGINS[token])

    def _issue(self, method: str, path: str, body: dict[str, Any], login: str) -> dict[str, Any] | None:
        if method == "POST" and path == f"/repos/{REPOSITORY}/issues":
            number = len(self.issues) + 1
            self.issues.append({"state": "open", **body, "number": number, "user": {"login": login}})
            return self.issues[-1]
        found = re.fullmatch(rf"/repos/{REPOSITORY}/issues/(\d+)", path)
        if method == "PATCH" and found:
            self.issues[int(found[1]) - 1] |= body
            return self.issues[int(found[1]) - 1]
        return None

    def _read(self, path: str, query: dict[str, list[str]], token: str) -> Answer:
        if path == "/user" and token == PERSON_TOKEN:
            return 200, {"login": LOGINS[token]}, {}
        if path == "/user":
            return 403, {"message": "Resource not accessible by integration"}, {}
        listed = self._listed(path, query)
        return NOT_FOUND if listed is None else self._page(listed, query)

    def _listed(self, path: str, query: dict[str, list[str]]) -> list[Any] | None:
        if found := re.fullmatch(rf"/repos/{REPOSITORY}/issues/(\d+)/comments", path):
            return self.comments.get(int(found[1]), [])
        if found := re.fullmatch(rf"/repos/{REPOSITORY}/commits/(\w+)/pulls", path):
            return [p for p in self.pulls if found[1] in {p["merge_commit_sha"], p["head"]["sha"]}]
        if path == f"/repos/{REPOSITORY}/pulls":
            label = query["head"][0]
            return [p for p in self.pulls if p["head"]["label"] == label and not p["merged_at"]]
        if path == f"/repos/{REPOSITORY}/issues":
            wanted = (query["state"][0], query["labels"][0])
            return [i for i in self.issues if (i["state"], i["labels"][0]) == wanted]
        return None

    def _page(self, entries: list[Any], query: dict[str, list[str]]) -> Answer:
        page = int(query.get("page", ["1"])[0])
        more = len(entries) > page * PAGE
        headers = {"Link": f'<{self.url}/?page={page + 1}>; rel="next"'} if more else {}
        return 200, entries[(page - 1) * PAGE : page * PAGE], headers

    def _write(self, method: str, path: str, sent: dict[str, Any], login: str) -> Answer:
        if (issue := self._issue(method, path, sent, login)) is not None:
            return 200, issue, {}
        body = sent["body"]
        if len(body) > LONGEST_BODY:
            return 422, {"message": "Validation Failed: body is too long (maximum is 65536 characters)"}, {}
        if method == "POST" and (found := re.fullmatch(rf"/repos/{REPOSITORY}/issues/(\d+)/comments", path)):
            self.say(int(found[1]), login, body)
            return 201, self.comments[int(found[1])][-1], {}
        if method == "PATCH" and (found := re.fullmatch(rf"/repos/{REPOSITORY}/issues/comments/(\d+)", path)):
            for comment in (c for comments in self.comments.values() for c in comments):
                if comment["id"] == int(found[1]):
                    comment["body"] = body
                    return 200, comment, {}
        return 404, {"message": "Not Found"}, {}


class _Handler(BaseHTTPRequestHandler):
    api: GitHubApi

    def handle_any(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        status, content, headers = self.api.answer(self.command, self.path, token, json.loads(raw or b"{}"))
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = handle_any  # noqa: N815 - the library's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def github_api() -> Iterator[GitHubApi]:
    api = GitHubApi()
    handler = type("Handler", (_Handler,), {"api": api})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield api
    server.shutdown()
    thread.join()
    server.server_close()
