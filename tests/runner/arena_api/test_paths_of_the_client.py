"""Every path that the published clients know is one that this server has."""

from __future__ import annotations

import re

import pytest

from arena_runner.server.app import create_app

ELSEWHERE = ("/api/cli/v1/on-prem", "/api/cli/v1/capabilities")
"""Hosted Arena's own commands; the client hides them when `capabilities` is 404."""


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.9.0", "1.29.0"])
def test_no_path_of_the_client_is_missing_here(python_of, version):
    root = python_of(version).parent.parent
    sources = [path.read_text() for path in root.glob("lib/python*/site-packages/agilerl/arena/*.py")]

    asked = {path for text in sources for path in re.findall(r'"(/api/[a-z0-9/-]+)"', text)}
    here = set(create_app(None).openapi()["paths"])

    assert len(asked) > 25
    assert {path for path in asked if not path.startswith(ELSEWHERE)} <= here


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.9.0", "1.29.0"])
def test_no_inference_path_of_the_client_is_missing_here(python_of, version):
    root = python_of(version).parent.parent
    (source,) = root.glob("lib/python*/site-packages/agilerl/arena/inference/agent.py")

    asked = set(re.findall(r'f?"(/[a-z_]+(?:/{sid})?)"', source.read_text()))
    here = {path.removeprefix("/i/{deployment}") for path in create_app(None).openapi()["paths"]}

    assert asked >= {"/status", "/generate", "/generate_stream", "/get_action", "/predict", "/sessions"}
    assert {path.replace("{sid}", "{session_id}") for path in asked} <= here


OURS = {"/api/cli/v1/inference/deployments/delete"}
"""What only our own client asks."""


def test_the_document_names_every_route(request):
    told = (request.config.rootpath / "docs" / "published-client.md").read_text()

    here = {
        path for path in create_app(None).openapi()["paths"] if path.startswith(("/api/cli", "/api/users"))
    }

    assert here
    assert {path for path in here - OURS if f"{path}`" not in told} == set()
