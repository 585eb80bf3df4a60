"""The door of this room: a folder becomes a `DesiredState`, or one error with every problem.

Reads `arena.yaml`, everything under its roots, and what those documents name; nothing else. Runs no code of the
repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from arena_gitops.errors import Diagnostic, RepoError, Severity, Span
from arena_gitops.repo import documents, imports
from arena_gitops.repo.catalog import Catalog
from arena_gitops.repo.files import Files
from arena_gitops.repo.git import ROOT_FILE, Checkout, Snapshot, checkout, file_at, snapshot
from arena_gitops.repo.resolve import resolve
from arena_gitops.spec.resource import Address, is_preview
from arena_gitops.spec.stack import Stack
from arena_gitops.spec.wire import Owner, Provenance
from arena_gitops.state import DesiredState, Policy, TargetSpec

KEPT_BYTES = 64 << 20
"""Of the files of an earlier commit."""


@dataclass(frozen=True, slots=True)
class Head:
    """Whose repository it is and where it may be applied, whatever the state of the rest."""

    owner: Owner
    targets: Mapping[str, TargetSpec]
    default_target: str | None


def load_head(root: Path, *, namespace: str = "main") -> Head:
    """Read `arena.yaml` alone: enough to look at a platform while other files are being edited.

    Raises:
        RepoError: with every problem of `arena.yaml`.
    """
    catalog = Catalog(Files(checkout(root)))
    documents.read_head(catalog)
    errors = [problem for problem in _sorted(catalog.problems) if problem.severity is Severity.ERROR]
    stack = catalog.stack
    if stack is None or errors:
        raise RepoError(errors)
    owner = Owner(stack=stack.name, namespace=namespace)
    return Head(owner, MappingProxyType(dict(_targets(stack))), _default_target(stack))


@dataclass(frozen=True, slots=True)
class Limits:
    """What somebody else has set for those who propose a change."""

    policy: Policy
    preview_steps: int


def load(root: Path, *, namespace: str = "main", limits: Limits | None = None) -> DesiredState:
    """Read the repository whose `arena.yaml` is in `root`; with `limits`, those count instead of its own.

    Raises:
        RepoError: with every problem found, sorted by place.
    """
    return _load(checkout(root), namespace, limits)


def limits_at(root: Path, ref: str) -> Limits | None:
    """The limits that `arena.yaml` sets in commit `ref`; None where there was none yet.

    Raises:
        RepoError: there is no such commit here (a shallow clone), or its `arena.yaml` has problems.
    """
    data = file_at(root, ref, ROOT_FILE)
    if data is None:
        return None
    with TemporaryDirectory(prefix="arena-at-") as folder:
        (Path(folder) / ROOT_FILE).write_bytes(data)
        alone = Snapshot(Path(folder).resolve(), {ROOT_FILE: ""}, frozenset(), ref, None)
        catalog = Catalog(Files(alone))
        documents.read_head(catalog)
    errors = [problem for problem in _sorted(catalog.problems) if problem.severity is Severity.ERROR]
    if catalog.stack is None or errors:
        raise RepoError([replace(found, message=f"at {ref[:12]}: {found.message}") for found in errors])
    return Limits(_policy(catalog.stack), catalog.stack.preview.max_steps)


def load_at(root: Path, ref: str, *, namespace: str = "main") -> DesiredState | None:
    """The repository in `root` as commit `ref` had it; None where there was no `arena.yaml` yet.

    Of its files only short ones are kept: what is returned can be compared, not applied.

    Raises:
        RepoError: there is no such commit, or it holds problems, each named with the commit.
    """
    with TemporaryDirectory(prefix="arena-at-") as folder:
        before = snapshot(root, ref, Path(folder))
        if ROOT_FILE not in before.files:
            return None
        try:
            return _with_contents(_load(before, namespace))
        except RepoError as error:
            problems = [replace(found, message=f"at {ref}: {found.message}") for found in error.diagnostics]
            raise RepoError(problems) from error


def _with_contents(state: DesiredState) -> DesiredState:
    """With the bytes of files in memory, as far as they are few: the folder they lie in is about to go."""
    left = KEPT_BYTES
    resources = dict(state.resources)
    for address, resource in state.resources.items():
        blobs = []
        for blob in resource.blobs:
            kept = blob
            if blob.data is None and not blob.absent and blob.size <= left:
                left -= blob.size
                kept = replace(blob, data=blob.path.read_bytes())
            blobs.append(kept)
        resources[address] = replace(resource, blobs=tuple(blobs))
    return replace(state, resources=MappingProxyType(resources))


def _load(files: Checkout, namespace: str, limits: Limits | None = None) -> DesiredState:
    most = limits.preview_steps if limits else None
    catalog = Catalog(Files(files), most_steps=most, preview=is_preview(namespace))
    documents.read_all(catalog)
    resources = resolve(catalog)
    documents.report_orphans(catalog)
    wanted = imports.of(catalog, resources)
    problems = _sorted(catalog.problems)
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    stack = catalog.stack
    if stack is None or errors:
        raise RepoError(errors)
    return DesiredState(
        owner=Owner(stack=stack.name, namespace=namespace),
        resources=MappingProxyType(dict(sorted(resources.items()))),
        notes=tuple(problems),
        policy=limits.policy if limits else _policy(stack),
        targets=MappingProxyType(dict(_targets(stack))),
        default_target=_default_target(stack),
        moved=MappingProxyType({Address.parse(m.to): Address.parse(m.source) for m in stack.moved}),
        provenance=_provenance(catalog, stack),
        imports=MappingProxyType(wanted),
    )


def _policy(stack: Stack) -> Policy:
    return Policy(
        max_credits_per_pr=stack.policy.max_credits_per_pr,
        tiers=stack.policy.tiers,
        require_owner=stack.policy.require_owner,
        max_credits_per_month=stack.policy.max_credits_per_month,
        max_credits_declared=stack.policy.max_credits_declared,
        max_credits_increase=stack.policy.max_credits_increase,
        max_credits_increase_percent=stack.policy.max_credits_increase_percent,
        max_nodes=stack.policy.max_nodes,
        floating_dataset=stack.policy.floating_dataset,
        floating_model=stack.policy.floating_model,
        reward_network=stack.policy.reward_network,
        reward_secrets=stack.policy.reward_secrets,
    )


def _targets(stack: Stack) -> Iterable[tuple[str, TargetSpec]]:
    for name, target in stack.targets.items():
        options = {"runner": target.runner} if target.runner is not None else {}
        yield name, TargetSpec(name, target.platform, target.url, MappingProxyType(options))


def _default_target(stack: Stack) -> str | None:
    if stack.default_target is not None or len(stack.targets) > 1:
        return stack.default_target
    return next(iter(stack.targets))


def _provenance(catalog: Catalog, stack: Stack) -> Provenance:
    """Dirty when anything that was read, or anything deleted under the roots, is not as committed."""
    files = catalog.files
    roots = tuple(f"{root}/" for root in stack.roots)
    read = {*files.read_paths, ROOT_FILE}
    dirty = any(path in read or path.startswith(roots) for path in files.checkout.changed)
    return Provenance(repo=files.checkout.remote, commit=files.checkout.commit, path=ROOT_FILE, dirty=dirty)


def _sorted(problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each problem once, by place; several resources may have met the same one in a shared file."""
    return sorted(
        dict.fromkeys(problems), key=lambda problem: (problem.span or Span(""), problem.code, problem.message)
    )
