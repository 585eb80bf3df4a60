"""From files to a `Catalog`: every YAML document under the roots, by its `kind`.

Folder names are a convention; `kind` decides. A document without `kind` waits in `Catalog.plain` until some
resource names its file, so that a typo in `kind` can never make an experiment disappear.
"""

from __future__ import annotations

import posixpath
import unicodedata
from dataclasses import replace
from typing import Any

from arena_gitops.errors import Diagnostic, InvalidDocumentError, Severity, Span
from arena_gitops.repo import credentials, imports, python, yaml
from arena_gitops.repo.catalog import Catalog, Entry
from arena_gitops.repo.document import Document
from arena_gitops.repo.files import IN_SUBMODULE, FileProblemError
from arena_gitops.repo.git import ROOT_FILE
from arena_gitops.spec.kinds import ADDRESS_KIND, KINDS
from arena_gitops.spec.kinds.reward import Reward
from arena_gitops.spec.problems import near, parse, suggestion
from arena_gitops.spec.resource import Address, is_name
from arena_gitops.spec.stack import ROOTS, Stack

_YAML = (".yaml", ".yml")
_REWARDS = "rewards"
"""Folder in which a Python file alone is a Reward."""


def read_all(catalog: Catalog) -> None:
    """Fill the catalog from `arena.yaml` and everything under its roots."""
    declared: dict[tuple[str, str], Document] = {}
    for document in read_head(catalog):
        _add(catalog, document, declared, alone=False)
    paths = _under_roots(catalog, catalog.head)
    for path in paths:
        if path.endswith(_YAML):
            documents = _read(catalog, path)
            for document in documents:
                _add(catalog, document, declared, alone=len(documents) == 1)
    _add_bare_rewards(catalog, paths)


def read_head(catalog: Catalog) -> list[Document]:
    """Read `arena.yaml`: the stack goes into the catalog, the resources behind it are returned."""
    documents = _read(catalog, ROOT_FILE)
    if not documents:
        return []
    catalog.head = documents[0]
    _add_stack(catalog, documents[0])
    return documents[1:]


def open_plain(catalog: Catalog, path: str) -> Document | None:
    """A document without `kind` that a resource names; None when its file's problems have been reported."""
    catalog.referred.add(path)
    if path in catalog.unreadable:
        return None
    if path not in catalog.plain:
        documents = _read(catalog, path)
        if path in catalog.unreadable:
            return None
        if len(documents) != 1 or "kind" in _keys(documents[0]):
            message = f"{path} holds resources, a document without kind is needed here"
            catalog.report(documents[0], ("kind",), message, "not-a-manifest")
            catalog.unreadable.add(path)
            return None
        catalog.plain[path] = documents[0]
    return catalog.plain[path]


def report_orphans(catalog: Catalog) -> None:
    """Report each document without `kind` that nothing refers to.

    Where some file could not be understood it may be the one that refers to a manifest, so manifests are let be.
    """
    unsure = bool(catalog.unreadable or catalog.broken)
    for path, document in sorted(catalog.plain.items()):
        if path in catalog.referred or (unsure and "algorithm" in _keys(document)):
            continue
        place, hint = _no_kind(document)
        catalog.problems.append(Diagnostic("no kind and nothing refers to it", "no-kind", place, hint))


def bare_reward(path: str, function: str = "reward") -> Entry | None:
    """The Reward that a Python file is by itself; None when its name cannot be a resource's name."""
    name = posixpath.basename(path).removesuffix(".py").replace("_", "-")
    if not is_name(name):
        return None
    value = {"kind": "Reward", "name": name, "file": posixpath.basename(path), "function": function}
    document = Document(path, value, (1, 1), {}, {}, {})
    return Entry(Address("reward", name), parse(Reward, value), document)


def _read(catalog: Catalog, path: str) -> list[Document]:
    try:
        data = catalog.files.read(path)
    except FileProblemError as problem:
        catalog.problems.append(Diagnostic(problem.message, problem.code, Span(path), problem.hint))
        catalog.unreadable.add(path)
        return []
    reading = yaml.read(data, path)
    catalog.problems.extend(reading.problems)
    if any(problem.severity is Severity.ERROR for problem in reading.problems):
        catalog.unreadable.add(path)
    catalog.problems.extend(credentials.find(data.decode(errors="replace"), path))
    if b"secret" in data or b"\\" in data:  # a reference, or an escape that may spell one
        for document in reading.documents:
            catalog.problems.extend(credentials.misplaced(document))
    return list(reading.documents)


def _under_roots(catalog: Catalog, head: Document | None) -> list[str]:
    roots = catalog.stack.roots if catalog.stack else ROOTS
    found: set[str] = set()
    for number, root in enumerate(roots):
        try:
            folder = catalog.files.find_folder(root, ROOT_FILE)
        except FileProblemError as problem:
            _report_left_out(catalog, root)
            if head is not None and "roots" in _keys(head):  # the default folders need not exist
                catalog.file_problem(head, ("roots", number), problem)
            continue
        found.update(catalog.files.below(folder))
        _report_left_out(catalog, folder)
    return sorted(found - {ROOT_FILE})


def _report_submodules(catalog: Catalog, folder: str) -> None:
    fetch = (
        "Fetch it: git submodule update --init (in GitHub Actions: `submodules: true` for actions/checkout)."
    )
    for path, filled in catalog.files.submodules(folder):
        if filled:
            message, hint = "the files of this git submodule are not read", IN_SUBMODULE
            found = Diagnostic(message, "in-submodule", Span(path), hint, Severity.WARNING)
        else:
            message = "this is a git submodule, and it is not checked out"
            found = Diagnostic(message, "submodule-missing", Span(path), fetch)
        catalog.problems.append(found)


def _report_left_out(catalog: Catalog, folder: str) -> None:
    """A document that only cannot be reached must not look as if it had been removed."""
    _report_submodules(catalog, folder)
    whole = "Check everything out: git sparse-checkout disable."
    _report_unreachable(
        catalog,
        catalog.files.not_checked_out(folder),
        Diagnostic("git tracks this file, and it is not checked out", "not-checked-out", hint=whole),
    )
    _report_unreachable(
        catalog,
        catalog.files.broken_links(folder),
        Diagnostic("this is a link to nothing", "broken-link", hint="Mend the link, or remove it."),
    )


def _report_unreachable(catalog: Catalog, paths: list[str], problem: Diagnostic) -> None:
    for path in paths:
        if path.endswith((*_YAML, ".py")):
            catalog.problems.append(replace(problem, span=Span(path)))
            catalog.unreadable.add(path)


def _add_stack(catalog: Catalog, document: Document) -> None:
    if not isinstance(document.value, dict):
        catalog.report(document, (), f"{ROOT_FILE} is a mapping that begins with `name:`", "not-a-mapping")
    elif "kind" in document.value:
        hint = "Put `name: my-stack` and `---` above it."
        message = f"the first document of {ROOT_FILE} is the stack, and has no kind"
        catalog.report(document, ("kind",), message, "no-stack", hint)
    else:
        try:
            catalog.stack = parse(Stack, document.value)
        except InvalidDocumentError as error:
            catalog.invalid(document, error)


def _add(
    catalog: Catalog, document: Document, declared: dict[tuple[str, str], Document], *, alone: bool
) -> None:
    if not isinstance(document.value, dict):
        catalog.report(document, (), "expected a mapping with `kind` and `name`", "not-a-mapping")
        return
    if imports.is_block(document):
        imports.add(catalog, document)
        return
    if "kind" not in document.value:
        if alone:
            catalog.plain[document.file] = document
        else:
            place, hint = _no_kind(document)
            message = "a document among several needs a kind"
            catalog.problems.append(Diagnostic(message, "no-kind", place, hint))
        return
    kind, name = document.value["kind"], document.value.get("name")
    if not isinstance(kind, str) or kind not in KINDS:
        hint = suggestion(str(kind), KINDS)
        catalog.report(document, ("kind",), f"unknown kind {kind!r}", "unknown-kind", hint)
        return
    if isinstance(name, str) and not _is_new(catalog, document, kind, name, declared):
        return
    _add_resource(catalog, document, kind, name)


def _add_resource(catalog: Catalog, document: Document, kind: str, name: Any) -> None:
    address = Address(ADDRESS_KIND[kind], name) if isinstance(name, str) else None
    try:
        resource = parse(KINDS[kind], document.value)
    except InvalidDocumentError as error:
        catalog.invalid(document, error)
        if address is not None:
            catalog.broken.add(address)
        return
    address = Address(ADDRESS_KIND[kind], resource.name)
    if document.file in catalog.unreadable:
        catalog.broken.add(address)
        return
    catalog.entries[address] = Entry(address, resource, document)


def _is_new(
    catalog: Catalog,
    document: Document,
    kind: str,
    name: str,
    declared: dict[tuple[str, str], Document],
) -> bool:
    """Whether no earlier document declares the same name, however it is spelled; reports it if one does."""
    key = (kind, unicodedata.normalize("NFC", name).casefold())
    first = declared.setdefault(key, document)
    if first is document:
        return True
    other = first.value["name"]
    how = "" if other == name else f", which differs only by spelling ({other!r})"
    message = f"{kind} {name!r} is declared twice; first at {first.span(('name',))}{how}"
    catalog.report(document, ("name",), message, "duplicate-name", "Give one of them another name.")
    return False


def _add_bare_rewards(catalog: Catalog, paths: list[str]) -> None:
    """Add a Reward for each Python file in a rewards folder that defines `reward` and that no Reward names."""
    named = {
        catalog.files.meant(entry.resource.file, entry.file)
        for entry in catalog.entries.values()
        if isinstance(entry.resource, Reward)
    }
    for path in paths:
        if (
            not path.endswith(".py")
            or posixpath.basename(posixpath.dirname(path)) != _REWARDS
            or path in named
        ):
            continue
        entry = bare_reward(path)
        if entry is None or entry.address in catalog.entries or entry.address in catalog.broken:
            continue
        module = python.parse(catalog.files, path)
        if not isinstance(module, python.Module):
            catalog.problems.append(module)
            catalog.broken.add(entry.address)
        elif "reward" in module.functions():
            catalog.entries[entry.address] = entry


def _no_kind(document: Document) -> tuple[Span, str]:
    """Where to point, and what to do, when a document has no kind: perhaps the key is misspelt."""
    key = near("kind", _keys(document))
    if key is not None:
        return document.key_span((key,)), f"Did you mean 'kind' where it says {key!r}?"
    kinds = ", ".join(KINDS)
    return document.span(), f"Write `kind:` ({kinds}), name it in an Experiment's `manifest:`, or remove it."


def _keys(document: Document) -> list[str]:
    return list(document.value) if isinstance(document.value, dict) else []
