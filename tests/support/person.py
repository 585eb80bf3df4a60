"""Somebody at a browser, without one: follows the pages of a server and sends their forms."""

from __future__ import annotations

import re

import httpx

HIDDEN = re.compile(r'<input type="hidden" name="([a-z_]+)" value="([^"]*)">')


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
