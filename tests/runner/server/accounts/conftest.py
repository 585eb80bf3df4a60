"""A server's app without a network, and a browser that fills in its forms."""

import re
from dataclasses import dataclass

import pytest
from starlette.testclient import TestClient

from arena_runner.server.app import create_app
from arena_runner.server.auth import issue

HIDDEN = re.compile(r'<input type="hidden" name="([a-z_]+)" value="([^"]*)">')


@dataclass
class Person:
    """Somebody at a browser: keeps cookies, follows nothing, sends forms with what they hide."""

    http: TestClient

    def form(self, path):
        return dict(HIDDEN.findall(self.http.get(path).text))

    def send(self, path, *, page=None, **fields):
        return self.http.post(path.partition("?")[0], data={**self.form(page or path), **fields})

    def log_in(self, token, path="/login"):
        return self.send(path, token=token)


@pytest.fixture
def app(world):
    return create_app(world)


@pytest.fixture
def person(app):
    """A browser with nothing in it."""
    with TestClient(app, follow_redirects=False) as http:
        yield Person(http)


@pytest.fixture
def stranger(app):
    """Another browser."""
    with TestClient(app, follow_redirects=False) as http:
        yield Person(http)


@pytest.fixture
def token_of(world):
    """`token_of("editor")`: a new token of this role."""
    return lambda role, subject="ada": issue(world, role, subject)
