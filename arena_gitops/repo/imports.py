"""`imports:` of `arena.yaml` and of documents that hold nothing else: what is taken over from the platform."""

from __future__ import annotations

from collections.abc import Container, Iterator

from arena_gitops.errors import InvalidDocumentError
from arena_gitops.repo.catalog import Catalog
from arena_gitops.repo.document import Document
from arena_gitops.spec.problems import parse
from arena_gitops.spec.resource import Address
from arena_gitops.spec.stack import Imported, Imports
from arena_gitops.state import Import

KEY = "imports"


def is_block(document: Document) -> bool:
    """Whether a document holds imports and nothing else."""
    return isinstance(document.value, dict) and list(document.value) == [KEY]


def add(catalog: Catalog, document: Document) -> None:
    """Keep the block of a document, or report what is wrong with it."""
    try:
        catalog.imports.append((document, parse(Imports, document.value).imports))
    except InvalidDocumentError as error:
        catalog.invalid(document, error)


def of(catalog: Catalog, declared: Container[Address]) -> dict[Address, Import]:
    """Every import by its address; each must be declared by a file, and imported once."""
    found: dict[Address, Import] = {}
    for document, number, wanted in _written(catalog):
        address, path = Address(wanted.kind, wanted.name), (KEY, number)
        if address in found:
            catalog.report(
                document, path, f"{address} is imported twice", "imported-twice", "Keep one of them."
            )
        elif address not in declared and address not in catalog.broken:
            message = f"{address} is to be imported, and no file declares it"
            hint = f"arena import {address} {wanted.id} --write FILE writes one as the platform has it."
            catalog.report(document, path, message, "import-undeclared", hint)
        found[address] = Import(str(wanted.id), as_is=wanted.adopt == "as_is")
    return found


def _written(catalog: Catalog) -> Iterator[tuple[Document, int, Imported]]:
    blocks = list(catalog.imports)
    if catalog.stack is not None and catalog.head is not None:
        blocks.insert(0, (catalog.head, catalog.stack.imports))
    for document, imports in blocks:
        for number, wanted in enumerate(imports):
            yield document, number, wanted
