"""`arena check`: look at what a repository would have trained, without changing anything but missing files.

*Static* looks run no repository code and reach no platform. *Run* looks ask the platform's sandbox, with the very
checks that stand before an apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from arena_gitops.apply.barrier import upload
from arena_gitops.apply.events import Checked, CheckStarted, Listener
from arena_gitops.errors import Diagnostic, Severity, UsageError
from arena_gitops.plan.model import Action, Change
from arena_gitops.plan.scores import ScoreDiff, paired
from arena_gitops.platforms.base import Platform
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import DatasetInput, JobInputs, RewardInput
from arena_gitops.spec.resource import Address, Frozen
from arena_gitops.spec.reward_source import suspicions
from arena_gitops.spec.wire import CheckRequest, CheckResult, CheckSummary, ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState

CHECKED = ("experiment", "dataset", "reward")


class Inspection(Frozen):
    """Everything that was found; the document of `arena check -o`."""

    format_version: Literal["1.0"] = "1.0"
    kind: Literal["arena.checks"] = "arena.checks"
    stack: str
    ran: bool
    """whether the code of rewards ran, in a platform's sandbox"""
    inputs: dict[str, str]
    """checked address → digest of what was checked; another digest makes these results void"""
    results: tuple[CheckResult, ...]
    summary: CheckSummary
    rewards: tuple[ScoreDiff, ...] = ()
    """rewards whose stored content differs: the same samples under both"""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """What must be put right."""
        return tuple(result for result in self.results if result.status == "fail")


def chosen(desired: DesiredState, named: Iterable[str]) -> tuple[Address, ...]:
    """The addresses to be checked; all of them when none is named."""
    known = {str(a): a for a in sorted(desired.resources) if a.kind in CHECKED}
    unknown = [name for name in named if name not in known]
    if unknown:
        raise UsageError(f"no {', '.join(unknown)} to check; there are: {', '.join(known)}")
    return tuple(known[name] for name in named) or tuple(known.values())


def static(desired: DesiredState, addresses: tuple[Address, ...]) -> Inspection:
    """Everything that can be said without running anything."""
    results: list[CheckResult] = []
    for address in addresses:
        resource = desired.resources[address]
        found = [*_refused(resource), *_suspicious(resource)]
        passed = CheckResult(address=str(address), name="definition", status="pass", message="is valid")
        results += found or [passed]
    results += [_noted(note) for note in desired.notes if note.severity is not Severity.NOTE]
    return _inspection(desired, addresses, results, ran=False)


def run(
    platform: Platform,
    desired: DesiredState,
    addresses: tuple[Address, ...],
    listener: Listener,
    *,
    forecast: bool = False,
) -> Inspection:
    """Have the platform check the inputs of these addresses in its sandbox; a forecast asks base models too."""
    asked = {"forecast": forecast}
    requests = [request.model_copy(update=asked) for request in _requests(desired, addresses)]
    upload(platform, desired, [_looked_at(request) for request in requests], listener)
    wanted = {str(address) for address in addresses}
    results: dict[tuple[str, str, str, str], CheckResult] = {}
    compared: dict[str, ScoreDiff] = {}
    stored = platform.observe(desired.owner).resources
    for request in requests:
        listener(CheckStarted(request.address))
        seen = list(_heard(platform, request, wanted, listener))
        results.update({(r.address, r.name, r.status, r.message): r for r in seen})
        before = _as_stored(request, stored)
        if before is not None and before.address not in compared:
            compared[before.address] = _compared(platform, request, before, seen)
    found = _inspection(desired, addresses, list(results.values()), ran=True)
    return found.model_copy(update={"rewards": tuple(compared.values())})


def _heard(
    platform: Platform, request: CheckRequest, wanted: set[str], listener: Listener
) -> Iterator[CheckResult]:
    for result in platform.check(request):
        if request.address in wanted or result.address in wanted:
            listener(Checked(request.address, result))
            yield result


def _as_stored(request: CheckRequest, stored: Mapping[Address, ResourceDocument]) -> RewardInput | None:
    """The reward of a request as the platform has it, on the cases of the new one; None where it is the same."""
    new = request.inputs.reward
    document = stored.get(Address.parse(new.address)) if new is not None else None
    if new is None or document is None:
        return None
    kept = {key: value for key, value in document.spec.items() if key in RewardInput.model_fields}
    old = RewardInput.model_validate({**kept, "address": new.address, "cases": new.cases})
    return None if (old.files, old.function) == (new.files, new.function) else old


def _compared(
    platform: Platform, request: CheckRequest, old: RewardInput, seen: list[CheckResult]
) -> ScoreDiff:
    """Both contents of a reward on the same samples; what the old one is found guilty of is not told again."""
    inputs = request.inputs.model_copy(update={"reward": old})
    before = platform.check(request.model_copy(update={"inputs": inputs, "forecast": False}))
    new_files = request.inputs.reward.files if request.inputs.reward else {}
    return paired(
        old.address,
        (old.files, new_files),
        [score for result in before if result.address == old.address for score in result.scores],
        [score for result in seen if result.address == old.address for score in result.scores],
    )


def _requests(desired: DesiredState, addresses: tuple[Address, ...]) -> list[CheckRequest]:
    """One per experiment that is, or uses, an address; and one for each input that no experiment uses."""
    left = {str(address) for address in addresses}
    found = []
    for address, resource in sorted(desired.resources.items()):
        if address.kind != "experiment":
            continue
        inputs = JobInputs.model_validate(resource.spec["inputs"])
        used = {part.address for part in (inputs.dataset, inputs.reward) if part is not None}
        if left & {str(address), *used}:
            request = CheckRequest(address=str(address), manifest=resource.spec["manifest"], inputs=inputs)
            found.append(request)
            left -= {str(address), *used}
    alone = [desired.resources[Address.parse(name)] for name in sorted(left)]
    return found + [CheckRequest(address=str(r.address), manifest={}, inputs=_input(r)) for r in alone]


def _input(resource: DesiredResource) -> JobInputs:
    """A dataset or a reward that nobody trains with yet."""
    if resource.address.kind == "dataset":
        return JobInputs(dataset=DatasetInput.model_validate(_fields(resource, DatasetInput)))
    return JobInputs(reward=RewardInput.model_validate(_fields(resource, RewardInput)))


def _fields(resource: DesiredResource, model: type[Frozen]) -> dict[str, Any]:
    kept = {key: value for key, value in resource.spec.items() if key in model.model_fields}
    return {**kept, "address": str(resource.address)}


def _looked_at(request: CheckRequest) -> Change:
    """What `upload` needs to know: whose files, with those of what it builds on."""
    return Change(address=request.address, action=Action.NOOP, reason="checked")


def _refused(resource: DesiredResource) -> Iterator[CheckResult]:
    span = resource.span
    for refusal in resource.refusals:
        yield CheckResult(
            address=str(resource.address),
            name="manifest",
            status="fail",
            message=refusal,
            file=span.file if span else None,
            line=span.line if span else None,
        )


def _suspicious(resource: DesiredResource) -> Iterator[CheckResult]:
    if resource.address.kind != "reward":
        return
    texts = {
        b.digest: b.data if b.data is not None else b.path.read_bytes()
        for b in resource.blobs
        if not b.absent
    }
    for name, digest in sorted(dict(resource.spec["files"]).items()):
        for suspicion in suspicions(texts.get(digest, b"").decode("utf-8", errors="replace")):
            yield CheckResult(
                address=str(resource.address),
                name="source",
                status="warn",
                message=str(suspicion),
                file=name,
                line=suspicion.line,
            )


def _noted(note: Diagnostic) -> CheckResult:
    span = note.span
    return CheckResult(
        address=span.file if span else "repository",
        name=note.code,
        status="warn",
        message=note.message,
        file=span.file if span else None,
        line=span.line if span else None,
    )


def _inspection(
    desired: DesiredState, addresses: tuple[Address, ...], results: list[CheckResult], *, ran: bool
) -> Inspection:
    counts = {status: sum(r.status == status for r in results) for status in ("pass", "warn", "fail")}
    content = {a: dict(desired.resources[a].spec) for a in addresses}
    return Inspection(
        stack=desired.owner.stack,
        ran=ran,
        inputs={str(a): sha256_json(spec.get("inputs", spec)) for a, spec in content.items()},
        results=tuple(results),
        summary=CheckSummary(passed=counts["pass"], warned=counts["warn"], failed=counts["fail"]),
    )
