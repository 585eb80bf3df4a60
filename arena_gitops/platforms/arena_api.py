"""The Arena API (`/api/cli/v1` and `/i/<deployment>`): what is made and used by name, without a repository.

It is the protocol of the published client; our own server speaks it beside the native API. This module knows
its routes and bodies, `arena_rows` the shapes of its answers, `platforms.door` HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from arena_gitops.errors import AuthError, CheckFailedError, PlatformError, PlatformRejectedError, Rejection
from arena_gitops.platforms.arena_rows import (
    ChatSession,
    CheckpointRow,
    Conversation,
    CreatedDataset,
    Dataset,
    Deployment,
    EnvironmentVersion,
    Existence,
    Experiment,
    FoundDataset,
    Model,
    ModelInfo,
    OneDeployment,
    Project,
    RunOfExperiment,
    StreamLine,
    Submitted,
    TierRow,
    Tiers,
    balance_of,
)
from arena_gitops.platforms.door import JSON, Door, Request, json_body
from arena_gitops.platforms.multipart import FilePart, Form, Sent

API = "/api/cli/v1"
CREDITS = "/api/users/credits"
UPLOAD_TIMEOUT_S = 300.0
ALL_ROWS = 10_000_000
"""Of metrics: more than any run has."""

Answer = TypeVar("Answer")
Listener = Callable[[StreamLine], None]
Text = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Submission:
    """An experiment to start."""

    manifest: Mapping[str, Any]
    resource_id: str | None = None
    num_nodes: int | None = None
    project: str | None = None
    experiment_name: str | None = None
    reward: FilePart | None = None
    completion: str | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentSource:
    """Code of an environment to register; the two files are always sent, empty when there is none."""

    archive: FilePart
    config: FilePart
    requirements: FilePart
    fields: Mapping[str, str]


class ArenaApi:
    """The groups of the published client, as calls."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def projects(self) -> tuple[Project, ...]:
        """Every project."""
        return self._get("/projects", tuple[Project, ...])

    def create_project(self, name: str, description: str | None, *, llm_based: bool) -> Project:
        """A new project; the same again is no error."""
        body = {"name": name, "description": description, "llm_based": llm_based}
        return self._send("POST", "/projects/create", body, Project)

    def delete_project(self, name: str) -> None:
        """Forget a project."""
        self._send("DELETE", "/projects/delete", {"name": name}, dict[str, Any])

    def datasets(self, name: str | None = None) -> tuple[Dataset, ...]:
        """Registered datasets; all of them, or the one of a name."""
        return self._get("/datasets", tuple[Dataset, ...], {"name": name})

    def search_datasets(self, text: str) -> tuple[FoundDataset, ...]:
        """Datasets of the hub, the most downloaded first."""
        return self._get("/datasets", tuple[FoundDataset, ...], {"search": text})

    def dataset_exists(self, name: str) -> Existence:
        """Whether there is a dataset of this name."""
        return self._get("/datasets/exists", Existence, {"name": name})

    def create_dataset(self, fields: Text, files: Sequence[FilePart], sent: Sent) -> CreatedDataset:
        """Register a dataset, with its files or from the hub; `sent` is told how far the upload is."""
        form = Form(_given(fields), tuple(files), sent)
        return self._upload("/datasets/create", form, CreatedDataset)

    def delete_dataset(self, name: str) -> None:
        """Forget a dataset; runs that use it keep its rows."""
        self._send("DELETE", "/datasets/delete", {"name": name}, dict[str, Any])

    def environments(self, name: str | None, *, include_arena: bool) -> tuple[EnvironmentVersion, ...]:
        """Registered environments, one row a version."""
        asked = {"name": name, "include_arena": str(include_arena).lower()}
        found = self._get("/environments", dict[str, dict[str, dict[str, bool]]], asked)
        return tuple(
            EnvironmentVersion(name=env, version=version, **states)
            for env, versions in found.items()
            for version, states in versions.items()
        )

    def environment_exists(self, name: str, version: str | None) -> bool:
        """Whether there is such an environment, or such a version of it."""
        return self._get("/environments/exists", Existence, {"name": name, "version": version}).exists

    def entrypoints(self, name: str, version: str | None) -> tuple[str, ...]:
        """The classes of an environment's code."""
        return self._get("/environments/entrypoints", tuple[str, ...], {"name": name, "version": version})

    def create_environment(self, source: EnvironmentSource, sent: Sent, tell: Listener) -> dict[str, Any]:
        """Register an environment's code and validate it; what the server says goes to `tell`."""
        form = Form(source.fields, (source.archive, source.config, source.requirements), sent)
        return self._streamed(f"{API}/environments/create-and-validate", form.headers, form.chunks, tell)

    def check_environment(self, action: str, body: Mapping[str, Any], tell: Listener) -> dict[str, Any]:
        """`validate` or `profile` a registered environment."""
        return self._streamed(f"{API}/environments/{action}", dict(JSON), json_body(dict(body)), tell)

    def delete_environment(self, name: str, version: str | None) -> None:
        """Forget a version, or all of them."""
        self._send("DELETE", "/environments/delete", {"name": name, "version": version}, dict[str, Any])

    def duplicate_environment(self, name: str, new: str, version: str | None) -> str:
        """Copy a version, the latest unless one is named; gives the version that was copied."""
        body = {"name": name, "new_version_name": new, "version": version}
        answer = self._send("POST", "/environments/duplicate", body, dict[str, Any])
        return str(answer.get("source_version", version or ""))

    def submit(self, wanted: Submission, tell: Listener) -> Submitted:
        """Start an experiment; what the server checks on the way goes to `tell`."""
        fields = {
            "resource_id": wanted.resource_id,
            "num_nodes": wanted.num_nodes,
            "project": wanted.project,
            "experiment_name": wanted.experiment_name,
        }
        path = f"{API}/experiments/jobs/submit"
        if wanted.reward is None:
            body = json_body({"manifest": dict(wanted.manifest), **fields})
            detail = self._streamed(path, dict(JSON), body, tell)
        else:
            texts = {key: None if value is None else str(value) for key, value in fields.items()}
            texts |= {"manifest": json.dumps(wanted.manifest), "completion": wanted.completion}
            form = Form({k: v for k, v in texts.items() if v is not None}, (wanted.reward,))
            detail = self._streamed(path, form.headers, form.chunks, tell)
        return _read(TypeAdapter(Submitted), json.dumps(detail), f"POST {path}")

    def experiments(self, project: str | None = None) -> tuple[Experiment, ...]:
        """The experiments of a project, or all."""
        return self._get("/experiments/list", tuple[Experiment, ...], {"project": project})

    def stop(self, name: str) -> RunOfExperiment:
        """Ask an experiment's run to stop."""
        return self._send("POST", "/experiments/jobs/stop", {"experiment_name": name}, RunOfExperiment)

    def resume(self, name: str, max_steps: int) -> RunOfExperiment:
        """Let an experiment's run go on to `max_steps`."""
        body = {"experiment_name": name, "max_steps": max_steps}
        return self._send("POST", "/experiments/jobs/resume", body, RunOfExperiment)

    def checkpoints(self, name: str) -> tuple[CheckpointRow, ...]:
        """What an experiment's run has exported, the oldest first."""
        return self._get(
            "/experiments/jobs/checkpoints", tuple[CheckpointRow, ...], {"experiment_name": name}
        )

    def metrics(self, name: str, only: Sequence[str], project: str | None) -> str:
        """Every figure of an experiment's run as CSV."""
        asked = {"experiment_name": name, "preview_rows": str(ALL_ROWS), "project": project}
        params: dict[str, str | list[str]] = {**_given(asked), "metric": list(only)}
        return self._call(Request("GET", f"{API}/experiments/metrics", params, repeatable=True))

    def metric_names(self, name: str, project: str | None) -> tuple[str, ...]:
        """The metrics there are."""
        return self._get(
            "/experiments/metrics", tuple[str, ...], {"experiment_name": name, "project": project}
        )

    def tiers(self) -> Mapping[str, TierRow]:
        """The compute classes, by their ids."""
        return self._get("/resources/list", Tiers).tiers

    def balance(self) -> float | None:
        """Credits that are left, where the answer says so; also a key that may not see them can plan."""
        try:
            raw = self._call(Request("GET", CREDITS, repeatable=True))
        except (PlatformRejectedError, AuthError):
            return None
        return balance_of(_read(TypeAdapter(Any), raw, f"GET {CREDITS}"))

    def models(self) -> tuple[Model, ...]:
        """The base models of the server."""
        return self._get("/models", tuple[Model, ...])

    def model(self, name: str) -> ModelInfo:
        """One base model."""
        return self._send("POST", "/models/info", {"model_name": name}, ModelInfo)

    def deploy(self, name: str, checkpoint: str | None, scope: str | None) -> Deployment:
        """Serve an experiment under its own name."""
        body = {"experiment_name": name, "checkpoint": checkpoint, "memoryScope": scope}
        return self._send("POST", "/inference/deploy", body, Deployment)

    def undeploy(self, name: str) -> None:
        """Stop serving; ours, the published client has no such call."""
        self._send("DELETE", "/inference/deployments/delete", {"name": name}, dict[str, Any])

    def deployments(
        self, name: str | None = None, experiment: str | None = None, project: str | None = None
    ) -> tuple[Deployment, ...]:
        """Every deployment that fits."""
        asked = {"name": name, "experimentName": experiment, "projectName": project}
        return self._get("/inference/deployments/list", tuple[Deployment, ...], asked)

    def deployment(self, name: str) -> OneDeployment:
        """One deployment, with whether it serves what it should."""
        return self._get("/inference/deployments/one", OneDeployment, {"name": name})

    def sessions(self, deployment: str) -> tuple[ChatSession, ...]:
        """The caller's conversations with a deployment, the newest first."""
        path = f"/i/{quote(deployment, safe='')}/sessions"
        raw = self._call(Request("GET", path, repeatable=True))
        found = _read(TypeAdapter(list[Any] | dict[str, list[Any]]), raw, f"GET {path}")
        rows = found.get("sessions", []) if isinstance(found, dict) else found
        return tuple(ChatSession.model_validate(row) for row in rows)

    def conversation(self, deployment: str, session: str) -> Conversation:
        """One conversation, with what was said."""
        request = Request("GET", _session_path(deployment, session), repeatable=True)
        return _read(TypeAdapter(Conversation), self._call(request), f"GET {request.path}")

    def forget(self, deployment: str, session: str) -> None:
        """Delete a conversation."""
        self._call(Request("DELETE", _session_path(deployment, session)))

    def _get(self, path: str, shape: type[Answer], asked: Text | None = None) -> Answer:
        request = Request("GET", API + path, _given(asked or {}), repeatable=True)
        return _read(TypeAdapter(shape), self._call(request), f"GET {API}{path}")

    def _send(self, method: str, path: str, body: Mapping[str, Any], shape: type[Answer]) -> Answer:
        request = Request(method, API + path, headers=dict(JSON), body=json_body(dict(body)))
        return _read(TypeAdapter(shape), self._call(request), f"{method} {API}{path}")

    def _upload(self, path: str, form: Form, shape: type[Answer]) -> Answer:
        request = Request(
            "POST",
            API + path,
            headers=form.headers,
            body=form.chunks,
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        return _read(TypeAdapter(shape), self._call(request), f"POST {API}{path}")

    def _call(self, request: Request) -> str:
        return self._door.call(request).text

    def _streamed(
        self,
        path: str,
        headers: Mapping[str, str],
        body: Callable[[], bytes | Iterator[bytes]],
        tell: Listener,
    ) -> dict[str, Any]:
        """Post, and tell line after line; the last line is a verdict, and one without is an error."""
        headers = {**headers, "Accept": "application/x-ndjson"}
        verdict: dict[str, Any] | None = None
        for text in self._door.lines(Request("POST", path, {}, headers, body, read_timeout_s=None)):
            line = _read(TypeAdapter(StreamLine), text, f"POST {path}")
            if line.status == "failed":
                raise _failed(line)
            if line.status == "completed" and line.detail is not None:
                verdict = line.detail
            tell(line)
        if verdict is None:
            raise PlatformError(f"POST {path} ended without saying how; read the server's log")
        return verdict


def _given(fields: Text) -> dict[str, str]:
    """What was given; an absent value is not sent."""
    return {name: value for name, value in fields.items() if value is not None}


def _read(adapter: TypeAdapter[Answer], text: str, what: str) -> Answer:
    """An answer, with or without the envelope `{"ok": true, "data": …}`."""
    try:
        raw = json.loads(text)
        if isinstance(raw, dict) and raw.get("ok") is True and "data" in raw:
            raw = raw["data"]
        return adapter.validate_python(raw)
    except (ValueError, ValidationError) as error:
        said = " ".join(text.split())[:200]
        raise PlatformError(f"{what} answered something this version does not understand: {said}") from error


def _failed(line: StreamLine) -> Exception:
    """What a stream that ends in a failure stands for."""
    detail = line.detail or {}
    code = str(detail.get("error_code", "failed"))
    more = {key: _text(value) for key, value in detail.items() if key != "error_code"}
    if code == "check-failed":
        return CheckFailedError(line.message)
    if code == "internal":
        return PlatformError(line.message)
    return PlatformRejectedError(Rejection(422, code, line.message, more))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _session_path(deployment: str, session: str) -> str:
    return f"/i/{quote(deployment, safe='')}/sessions/{quote(session, safe='')}"
