"""Each thing that is made there, once: asked for, and after a lost answer looked for instead of asked for again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from arena_gitops.errors import CheckFailedError, PlatformError, PlatformRejectedError, Rejection
from arena_gitops.platforms.arena_api import ArenaApi, Submission
from arena_gitops.platforms.arena_cloud.names import Content, VersionName, content_of, dataset_name
from arena_gitops.platforms.arena_cloud.seen import Seen, Version
from arena_gitops.platforms.arena_cloud.sent import published
from arena_gitops.platforms.arena_cloud.staging import Staging
from arena_gitops.platforms.arena_cloud.state import base_of
from arena_gitops.platforms.multipart import FilePart
from arena_gitops.spec.job import RunState
from arena_gitops.spec.wire import PutResource, ResourceDocument

LOOKS = (0.5, 2.0, 5.0)
"""Seconds before each look for what an answer was lost about; a list may lag behind."""
UNFINISHED = frozenset({RunState.STOPPED, RunState.FAILED})
_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def rejected(status: int, code: str, message: str) -> PlatformRejectedError:
    """A refusal of ours."""
    return PlatformRejectedError(Rejection(status, code, message))


class Maker:
    """Makes what is not there."""

    def __init__(self, api: ArenaApi, staging: Staging, pause: Callable[[float], None]) -> None:
        self._api, self._staging, self._pause = api, staging, pause

    def project(self, name: str, spec: Mapping[str, Any]) -> None:
        """A project; that it exists is no error."""

        def there() -> bool:
            return any(project.name == name for project in self._api.projects())

        if not there():
            llm, about = bool(spec.get("llm_based")), str(spec.get("description") or "")
            self._once(lambda: self._api.create_project(name, about, llm_based=llm), there)

    def dataset(self, name: str, source: Mapping[str, Any], description: str | None = None) -> str:
        """Rows under the name of their content, which is answered."""
        made = dataset_name(name, source)

        def there() -> bool:
            return self._api.dataset_exists(made).exists

        if there():
            return made
        hub = source.get("hf") or {}
        fields = {
            "name": made,
            "category": str(source["category"]),
            "column_mapping": json.dumps(source["column_mapping"]),
            "description": description or str(source.get("description") or "") or None,
            "hf_dataset_name": hub.get("id"),
            "hf_config": hub.get("config"),
            "hf_split": hub.get("split"),
        }
        files = [] if hub else [self._rows(made, source)]
        self._once(lambda: self._api.create_dataset(fields, files, lambda _: None), there)
        return made

    def experiment(self, name: str, body: PutResource, seen: Seen, before: ResourceDocument | None) -> None:
        """A version that nobody has made; else more steps for it, or its return. Others of ours end."""
        content = content_of(body.spec, body.rerun)
        base = base_of(name, seen)
        same = [version for version in seen.versions if version.name.content == content]
        found = next((v for v in same if v.name.base == base), same[0] if same else None)
        if found is None:
            self._submit(self._next(name, content, body, seen), body)
        else:
            self._go_on(
                found,
                body,
                returned=before is None or before.run is None or before.run.run_id != str(found.name),
            )
        lifecycle: Any = body.spec.get("lifecycle") or {}
        if lifecycle.get("replace_policy") == "keep_old":
            return
        for version in seen.bases.get(base, ()):
            if version is not found and not version.state.ended:
                self._api.stop(str(version.name))

    def deployment(self, version: Version, checkpoint: str) -> None:
        """Serve a version under its own name; asking again with another checkpoint follows that."""
        name = str(version.name)
        rule = None if checkpoint == "best" else checkpoint

        def there() -> bool:
            rows = self._api.deployments()
            return any(
                name in {row.name, row.experiment_name} and row.checkpoint in {None, checkpoint}
                for row in rows
            )

        self._once(lambda: self._api.deploy(name, rule, None), there)

    def _next(self, name: str, content: Content, body: PutResource, seen: Seen) -> VersionName:
        before = seen.bases.get(base_of(name, seen), ())
        number = max((version.name.number for version in before), default=0) + 1
        return VersionName.of(name, number, content, body.owner)

    def _submit(self, name: VersionName, body: PutResource) -> None:
        spec: Mapping[str, Any] = body.spec
        inputs = spec["inputs"]
        reward = self._reward(inputs.get("reward"))
        dataset = inputs.get("dataset")
        rows = self.dataset(dataset["address"].partition("/")[2], dataset) if dataset else None
        wanted = Submission(
            manifest=published(spec, rows),
            resource_id=spec.get("tier"),
            num_nodes=spec.get("num_nodes"),
            project=spec.get("project"),
            experiment_name=str(name),
            reward=reward,
        )

        def there() -> bool:
            listed = self._api.experiments(wanted.project)
            return any(row.name == wanted.experiment_name for row in listed)

        self._once(lambda: self._api.submit(wanted, lambda _: None), there)

    def _go_on(self, version: Version, body: PutResource, *, returned: bool) -> None:
        """More steps than it has, or what was left unfinished and is wanted again."""
        spec: Mapping[str, Any] = body.spec
        steps = int(spec["manifest"]["training"]["max_steps"])
        more = version.max_steps is not None and steps > version.max_steps
        if (more and version.state.ended) or (returned and version.state in UNFINISHED):
            self._api.resume(str(version.name), steps)

    def _rows(self, name: str, source: Mapping[str, Any]) -> FilePart:
        form = str(source.get("format") or "csv")
        return self._staging.part(
            str(source["digest"]), "file", f"{name}.{form}", _TYPES.get(form, "text/csv")
        )

    def _reward(self, reward: Mapping[str, Any] | None) -> FilePart | None:
        if reward is None:
            return None
        digest, file = reward["files"][reward["entry"]], reward["entry"].rpartition("/")[2]
        return self._staging.part(digest, "reward_file", file, "text/x-python")

    def _once(self, make: Callable[[], object], there: Callable[[], bool]) -> None:
        """Ask, and where nobody knows what became of it look; never ask twice."""
        try:
            make()
        except (PlatformRejectedError, CheckFailedError):
            raise
        except PlatformError:
            for seconds in LOOKS:
                self._pause(seconds)
                if self._found(there):
                    return
            raise

    def _found(self, there: Callable[[], bool]) -> bool:
        try:
            return there()
        except PlatformError:
            return False  # whoever does not answer now may do so at the next look
