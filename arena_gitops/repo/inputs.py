"""What a job reads: datasets, rewards and environments as digests of files, with the files to upload."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from arena_gitops.errors import Diagnostic, Severity, Span
from arena_gitops.repo import credentials, documents, python, tables
from arena_gitops.repo.catalog import Catalog, Entry
from arena_gitops.repo.document import Document
from arena_gitops.repo.files import FileProblemError, Files
from arena_gitops.repo.python import Module
from arena_gitops.spec.entrypoints import entrypoints
from arena_gitops.spec.job import DatasetInput, EnvironmentInput, RewardInput
from arena_gitops.spec.kinds.dataset import Dataset
from arena_gitops.spec.kinds.environment import Environment
from arena_gitops.spec.kinds.reward import Reward
from arena_gitops.spec.problems import near
from arena_gitops.state import Blob

In = TypeVar("In", DatasetInput, RewardInput, EnvironmentInput)

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_YAML = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Found(Generic[In]):
    """An input, and the repository files behind it."""

    value: In
    paths: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()


def dataset(catalog: Catalog, entry: Entry, resource: Dataset) -> Found[DatasetInput] | None:
    """The rows of a Dataset; None when there is a problem, which the catalog then has."""
    common: dict[str, Any] = {
        "address": str(entry.address),
        "category": resource.category,
        "column_mapping": resource.column_mapping,
    }
    if resource.file is None:
        return Found(DatasetInput(**common, hf=resource.hf))
    files = catalog.files
    try:
        path = files.find(resource.file, entry.file)
        blob = files.blob(path)
        known = None if blob.absent else tables.columns(files.on_disk(path), path)
    except FileProblemError as problem:
        catalog.file_problem(entry.document, ("file",), problem)
        return None
    if blob.absent:
        message = f"{path} {blob.absent}: its columns are not checked"
        catalog.remark(entry.document.span(("file",)), message, "lfs-pointer", "Fetch it with: git lfs pull.")
    else:
        catalog.problems.extend(credentials.find(tables.header_text(files.on_disk(path)), path))
    if known is not None and not _columns_exist(catalog, entry, resource, path, known):
        return None
    value = DatasetInput(**common, digest=blob.digest, format=tables.format_of(path))
    return Found(value, (path,), (blob,))


def reward(catalog: Catalog, entry: Entry, resource: Reward) -> Found[RewardInput] | None:
    """The code of a Reward; None when there is a problem, which the catalog then has."""
    try:
        path = catalog.files.find(resource.file, entry.file)
    except FileProblemError as problem:
        catalog.file_problem(entry.document, ("file",), problem)
        return None
    modules, problems = python.closure(catalog.files, path)
    catalog.problems.extend(problems)
    if problems or not _function_exists(catalog, entry, resource, modules[path]):
        return None
    blobs = {name: catalog.files.blob(name) for name in sorted(modules)}
    value = RewardInput(
        address=str(entry.address),
        files={name: blob.digest for name, blob in blobs.items()},
        entry=path,
        function=resource.function,
        requirements=resource.requirements,
        network=resource.network,
        secrets=resource.secrets,
        cases=resource.cases,
    )
    return Found(value, tuple(blobs), tuple(blobs.values()))


def environment(catalog: Catalog, entry: Entry, resource: Environment) -> Found[EnvironmentInput] | None:
    """The code of an Environment; None when there is a problem, which the catalog then has."""
    before = len(catalog.problems)
    located = _source(catalog, entry, resource)
    config = env_config(catalog, entry.document, ("config",), resource.config) if resource.config else {}
    requirements = _requirements(catalog, entry, resource.requirements) if resource.requirements else ()
    if located is None or _failed(catalog, before):
        return None
    folder, paths = located
    catalog.referred.update(_data(catalog, paths))
    try:
        blobs = {path: catalog.files.blob(path) for path in paths}
        for path in paths:
            if path.endswith(".py"):
                text = catalog.files.read(path).decode(errors="replace")
                catalog.problems.extend(credentials.find(text, path))
    except FileProblemError as problem:
        catalog.file_problem(entry.document, ("source",), problem)
        return None
    entrypoint = resource.entrypoint or _only_entrypoint(catalog, entry, resource, folder, paths)
    if entrypoint is None or not _entrypoint_exists(catalog, entry, resource, folder, paths):
        return None
    value = EnvironmentInput(
        address=str(entry.address),
        files={posixpath.relpath(path, folder): blob.digest for path, blob in blobs.items()},
        entrypoint=entrypoint,
        multi_agent=resource.multi_agent,
        requirements=requirements,
        env_config=config,
    )
    return Found(value, tuple(paths), tuple(blobs.values()))


def _data(catalog: Catalog, paths: Iterable[str]) -> Iterable[str]:
    """YAML that is data of the code; what has a `name` is more likely a resource whose kind is misspelt."""
    for path in paths:
        found = catalog.plain.get(path)
        if found is not None and not (isinstance(found.value, dict) and "name" in found.value):
            yield path


def env_config(catalog: Catalog, document: Document, path: tuple[str, ...], written: str) -> dict[str, Any]:
    """The mapping in an env_config file that a document names at `path`."""
    try:
        found = catalog.files.find(written, document.file)
    except FileProblemError as problem:
        catalog.file_problem(document, path, problem)
        return {}
    config = documents.open_plain(catalog, found)
    if config is None:
        return {}
    if not isinstance(config.value, dict):
        catalog.report(config, (), "an env_config is a mapping", "not-a-mapping")
        return {}
    return dict(config.value)


def _columns_exist(
    catalog: Catalog, entry: Entry, resource: Dataset, path: str, known: tuple[str, ...]
) -> bool:
    shown = ", ".join(known[:20]) + (" …" if len(known) > 20 else "")
    missing = [(role, column) for role, column in resource.column_mapping.items() if column not in known]
    for role, column in missing:
        match = near(column, known)
        hint = f"Did you mean {match!r}?" if match else ""
        message = f"{path} has no column {column!r}; it has: {shown}"
        catalog.report(entry.document, ("column_mapping", role), message, "missing-column", hint)
    return not missing


def _function_exists(catalog: Catalog, entry: Entry, resource: Reward, module: Module) -> bool:
    if resource.function in module.names():
        return True
    functions = module.functions()
    match = near(resource.function, functions)
    known = ", ".join(sorted(functions)) or "none"
    hint = f"Did you mean {match!r}?" if match else f"Functions there: {known}."
    message = f"{module.path} defines no function {resource.function!r}"
    catalog.report(entry.document, ("function",), message, "missing-function", hint)
    return False


def _source(catalog: Catalog, entry: Entry, resource: Environment) -> tuple[str, list[str]] | None:
    """The folder that imports start from, and the files that belong to the environment."""
    files = catalog.files
    try:
        if resource.source.endswith((*_ARCHIVES, ".py")):
            path = files.find(resource.source, entry.file)
            folder = posixpath.dirname(path) or "."
            if not path.endswith(".py"):
                return folder, [path]
            modules, problems = python.closure(files, path)
            catalog.problems.extend(problems)
            return folder, sorted(modules)
        folder = files.find_folder(resource.source, entry.file)
    except FileProblemError as problem:
        catalog.file_problem(entry.document, ("source",), problem)
        return None
    declared = {other.file for other in catalog.entries.values()}
    paths = [path for path in files.below(folder) if path not in declared]
    return folder, [path for path in paths if not _is_config(files, path, entry, resource)]


def _is_config(files: Files, path: str, entry: Entry, resource: Environment) -> bool:
    """Whether the file travels as a value already, so that a comment in it changes nothing."""
    named = (resource.config, resource.requirements)
    return path in {files.meant(name, entry.file) for name in named if name}


def _only_entrypoint(
    catalog: Catalog, entry: Entry, resource: Environment, folder: str, paths: list[str]
) -> str | None:
    """The environment that is meant where none is named: the only one there is."""
    if resource.source.endswith(_ARCHIVES):
        message = "the environment of an archive has to be named"
        catalog.report(
            entry.document, ("source",), message, "no-entrypoint", "Write entrypoint: module:Class."
        )
        return None
    sources = {
        posixpath.relpath(path, folder): catalog.files.read(path).decode(errors="replace")
        for path in paths
        if path.endswith(".py")
    }
    found = entrypoints(sources)
    if len(found) == 1:
        return found[0]
    several = f"{len(found)} environments are in {folder}: {', '.join(found)}"
    message = (
        several if found else f"there is no environment in {folder}: no class derives from gymnasium.Env"
    )
    hint = "Write entrypoint: module:Class, with the one that is meant."
    catalog.report(entry.document, ("source",), message, "no-entrypoint", hint)
    return None


def _entrypoint_exists(
    catalog: Catalog, entry: Entry, resource: Environment, folder: str, paths: list[str]
) -> bool:
    if resource.entrypoint is None or resource.source.endswith(_ARCHIVES):
        return True  # it was found by reading, or the platform opens it
    name, _, cls = resource.entrypoint.partition(":")
    place = posixpath.normpath(posixpath.join(folder, name.replace(".", "/")))
    home = next((path for path in (f"{place}.py", f"{place}/__init__.py") if path in paths), None)
    if home is None:
        hint = _modules_hint(name, folder, paths)
        message = f"there is no module {name!r} in {folder}"
        catalog.report(entry.document, ("entrypoint",), message, "missing-entrypoint", hint)
        return False
    modules, problems = python.closure(catalog.files, home, folder)
    catalog.problems.extend(problems)
    if problems or cls in modules[home].names():
        return not problems
    match = near(cls, modules[home].names())
    hint = f"Did you mean {match!r}?" if match else ""
    message = f"{home} defines no class {cls!r}"
    catalog.report(entry.document, ("entrypoint",), message, "missing-entrypoint", hint)
    return False


def _modules_hint(name: str, folder: str, paths: list[str]) -> str:
    known = [posixpath.relpath(path, folder)[:-3].replace("/", ".") for path in paths if path.endswith(".py")]
    match = near(name, known)
    return f"Did you mean {match!r}?" if match else f"Modules there: {', '.join(known[:20]) or 'none'}."


def _requirements(catalog: Catalog, entry: Entry, written: str) -> tuple[str, ...]:
    try:
        path = catalog.files.find(written, entry.file)
        text = catalog.files.source(path).decode()
    except FileProblemError as problem:
        catalog.file_problem(entry.document, ("requirements",), problem)
        return ()
    except UnicodeDecodeError:
        catalog.report(entry.document, ("requirements",), f"{written} is not UTF-8 text", "not-utf8")
        return ()
    catalog.problems.extend(credentials.find(text, path))
    return tuple(_requirement_lines(catalog, text.splitlines(), path))


def _requirement_lines(catalog: Catalog, lines: Iterable[str], path: str) -> Iterable[str]:
    for number, line in enumerate(lines, 1):
        text = line.partition(" #")[0].strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("-"):
            span = Span(path, number, line.index("-") + 1)
            hint = "Write every requirement in this file."
            catalog.problems.append(
                Diagnostic("options are not read here", "requirements-option", span, hint)
            )
            continue
        yield text


def _failed(catalog: Catalog, before: int) -> bool:
    return any(problem.severity is Severity.ERROR for problem in catalog.problems[before:])


def file_of(catalog: Catalog, entry: Entry) -> str | None:
    """The path of the file a Reward or Dataset names, whether or not it exists."""
    resource = entry.resource
    written = resource.file if isinstance(resource, Reward | Dataset) else None
    return catalog.files.meant(written, entry.file) if written else None
