"""Somebody who asks a server: with a token, or at a browser without one, by its pages and their forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from starlette.testclient import TestClient

from arena_runner.server.app import create_app
from arena_runner.server.auth import Role, issue
from arena_runner.server.world import World

HIDDEN = re.compile(r'<input type="hidden" name="([a-z_]+)" value="([^"]*)">')


@contextmanager
def asking(world: World) -> Iterator[TestClient]:
    """Ask a world without processes as an editor."""
    headers = {"Authorization": f"Bearer {issue(world, Role.EDITOR, 'ada')}"}
    with TestClient(create_app(world), headers=headers) as client:
        yield client


def decide(address: str, token: str, decision: str = "approve", role: str = "editor") -> httpx.Response:
    """Open the address of a device login, log in with the token, and approve or deny."""
    with httpx.Client(follow_redirects=True, trust_env=False) as browser:
        login = browser.get(address)
        origin = f"{login.url.scheme}://{login.url.netloc.decode()}"
        page = browser.post(f"{origin}/login", data={**_hidden(login), "token": token})
        form = {**_hidden(page), "decision": decision, "role": role}
        answer = browser.post(f"{origin}/device", data=form)
        assert answer.status_code == 200, answer.text
        return answer


def _hidden(page: httpx.Response) -> dict[str, str]:
    return dict(HIDDEN.findall(page.text))
