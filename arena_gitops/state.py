"""Desired and observed state: immutable maps from address to resource. No I/O, no decisions.

`repo` makes a `DesiredState`, a platform makes an `ObservedState`, `plan` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.spec.digest import Fingerprint, sha256_json
from arena_gitops.spec.inputs import EnvironmentProfile
from arena_gitops.spec.memory import ModelFacts
from arena_gitops.spec.resource import Address
from arena_gitops.spec.stack import RESERVED
from arena_gitops.spec.wire import KnownRun, Owner, Provenance, ResourceDocument, Tier


@dataclass(frozen=True, slots=True)
class Blob:
    """A file to upload before the resource that names it."""

    digest: str
    path: Path
    """where its bytes are; read only by apply"""
    size: int
    data: bytes | None = None
    """its bytes, where they are not those at `path`: git stores other line endings, or an older version"""
    absent: str = ""
    """why the bytes are not on this machine (an LFS pointer); only a platform that has them can go on"""


Unsound = Literal["absent", "damaged"]
"""What has become of a stored file: it is gone, or its bytes do not hash to its name any more."""


@dataclass(frozen=True, slots=True)
class DesiredResource:
    """One resource as the repository wants it, ready to PUT."""

    address: Address
    spec: Mapping[str, Any]
    """canonical JSON object, the same shape that the platform stores"""
    fingerprint: Fingerprint
    depends_on: tuple[Address, ...] = ()
    blobs: tuple[Blob, ...] = ()
    span: Span | None = None
    spans: Mapping[str, Span] = field(default_factory=lambda: MappingProxyType({}))
    """dotted path in `spec` → where the user wrote it"""
    provenance: Provenance = field(default_factory=Provenance)
    parents: tuple[tuple[Address, Fingerprint], ...] = ()
    """what went into its fingerprint: another fingerprint of one of these gives it another one"""
    refusals: tuple[str, ...] = ()
    """what of an experiment's manifest has no room yet, in words: understood, and not to be trained"""


@dataclass(frozen=True, slots=True)
class Policy:
    """`arena.yaml: policy`."""

    max_credits_per_pr: float | None = None
    tiers: tuple[str, ...] = ()
    require_owner: bool = False
    max_credits_per_month: float | None = None
    max_credits_declared: float | None = None
    max_credits_increase: float | None = None
    max_credits_increase_percent: float | None = None
    max_nodes: int | None = None
    floating_dataset: Literal["allow", "warn", "forbid"] = "allow"
    """rows of the hub without a revision"""
    floating_model: Literal["allow", "warn", "forbid"] = "allow"
    """base models of the hub without a revision"""
    reward_network: Literal["allow", "warn", "forbid"] = "allow"
    """rewards whose code may reach other machines"""
    reward_secrets: tuple[str, ...] | None = None
    """secrets that rewards may be given; None: any"""


@dataclass(frozen=True, slots=True)
class Import:
    """One entry of `imports:`."""

    id: str
    """what the platform calls it"""
    as_is: bool = False
    """whether what the repository says counts as what was trained"""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One entry of `arena.yaml: targets`."""

    name: str
    platform: str
    url: str | None = None
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Everything the repository declares."""

    owner: Owner
    resources: Mapping[Address, DesiredResource]
    notes: tuple[Diagnostic, ...] = ()
    """warnings and notes; errors never get this far"""
    policy: Policy = Policy()
    targets: Mapping[str, TargetSpec] = field(default_factory=lambda: MappingProxyType({}))
    default_target: str | None = None
    moved: Mapping[Address, Address] = field(default_factory=lambda: MappingProxyType({}))
    """new address → the old one, as `arena.yaml: moved` says"""
    provenance: Provenance = field(default_factory=Provenance)
    imports: Mapping[Address, Import] = field(default_factory=lambda: MappingProxyType({}))
    """what is to be taken over from the platform"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a platform cannot do, said in words before anything is tried; our own server has none of these."""

    refused: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    """what cannot be made there as it is declared, and why"""
    unheeded: Mapping[Address, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """what is declared and not acted on there"""
    unread: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    """what is known to have other content, of which nothing else is kept"""
    leftovers: tuple[str, ...] = ()
    """what goes on there, is not wanted any more, and cannot be ended"""
    raises_in_flight: bool = True
    """whether a run at work can be given more steps"""
    removes: bool = True
    """whether anything can be taken off it; a run at work can always be stopped"""
    deploys_ahead: bool = True
    """whether somebody there promotes a checkpoint once its run has ended"""
    resumes: bool = True
    """whether a person can let a run go on that was stopped or has failed (`arena resume`)"""
    adopts: bool = True
    """whether what commands have made there can be taken over (`imports:`)"""
    judges_manifests: bool = False
    """whether only the platform knows what it trains: our own list of algorithms is no reason to refuse"""


@dataclass(frozen=True, slots=True)
class ObservedState:
    """What one stack owns on a platform, and what the platform can do."""

    platform: str
    lineage: str = ""
    etag: str = ""
    resources: Mapping[Address, ResourceDocument] = field(default_factory=lambda: MappingProxyType({}))
    foreign: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    """address → the stack that owns it"""
    unmanaged: Mapping[Address, ResourceDocument] = field(default_factory=lambda: MappingProxyType({}))
    """what no repository manages; looked up only where something of it is to be imported"""
    runs: Mapping[tuple[str, int], KnownRun] = field(default_factory=lambda: MappingProxyType({}))
    """run fingerprint and rerun → reusable run"""
    tiers: Mapping[str, Tier] = field(default_factory=lambda: MappingProxyType({}))
    algorithms: tuple[str, ...] | None = None
    """None when the platform could not say (offline, or it does not exist yet)"""
    trainer: str | None = None
    """version of the runner that trains there; None where nobody says"""
    max_steps: int | None = None
    spent_this_month: float | None = None
    """credits; None where the platform does not say"""
    balance: float | None = None
    """credits that are left to spend; None where the platform does not say"""
    models: Mapping[str, ModelFacts] = field(default_factory=lambda: MappingProxyType({}))
    """name of a base model → its shape"""
    secrets: Mapping[str, int] | None = None
    """name of a secret that has a value → the version of that value; None where the platform does not say"""
    profiles: Mapping[str, EnvironmentProfile] = field(default_factory=lambda: MappingProxyType({}))
    """content of an environment → what it costs"""
    limits: Limits = field(default_factory=Limits)

    @property
    def serial(self) -> str:
        """Moves with every write to anything of the stack, never with the progress of a run."""
        return sha256_json(
            sorted([str(address), document.etag] for address, document in self.resources.items())
        )

    @property
    def nobodys(self) -> int:
        """How much of the namespace commands have made; no repository manages it."""
        return sum(owner == RESERVED for owner in self.foreign.values())
