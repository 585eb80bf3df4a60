"""Names and rules of the model registry, and the one question a PUT asks it: what does this alias mean?"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass

import httpx

BEST = "best"
SERVING = "serving"
"""The two aliases the platform keeps; all others belong to people."""


def model_name(namespace: str, experiment: str) -> str:
    """The registered model of an experiment; previews have their own."""
    return experiment if namespace == "main" else f"{namespace}.{experiment}"


def credentials() -> httpx.Auth | None:
    """How this server logs in at an MLflow that asks for it: the variables that MLflow's own client reads."""
    token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
    if user:
        return httpx.BasicAuth(user, os.environ.get("MLFLOW_TRACKING_PASSWORD", ""))
    return _Bearer(token) if token else None


class _Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


@dataclass(frozen=True, slots=True)
class AliasAnswer:
    """What MLflow says about an alias."""

    version: str | None
    reachable: bool
    """False: nobody knows, which is not the same as no alias"""


def ask_alias(mlflow: str | None, model: str, alias: str) -> AliasAnswer:
    """The version an alias points to, asked now; never raises for an MLflow that is down."""
    if mlflow is None:
        return AliasAnswer(None, reachable=False)
    try:
        answer = httpx.get(
            f"{mlflow}/api/2.0/mlflow/registered-models/alias",
            params={"name": model, "alias": alias},
            timeout=5.0,
            trust_env=False,
            auth=credentials(),
        )
    except httpx.TransportError:
        return AliasAnswer(None, reachable=False)
    if answer.status_code == 200:
        return AliasAnswer(str(answer.json()["model_version"]["version"]), reachable=True)
    missing = answer.status_code in {400, 404}  # no such model, or no such alias on it
    return AliasAnswer(None, reachable=missing)
